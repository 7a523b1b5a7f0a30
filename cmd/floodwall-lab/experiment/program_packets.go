// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// serviceText starts a policy with a service. The rest of the service is added after its port.
const serviceText = "default: drop\nservices:\n  - {name: web, port: tcp/80%s}\n"

func serviceColumns() []column {
	return []column{
		{name: "syn=off", head: "off", text: fmt.Sprintf(serviceText, ""), prepare: nothing},
		{name: "syn=always", head: "always, mode host", text: fmt.Sprintf(serviceText, ", syn: {when: always, mode: host}"), prepare: connect},
	}
}

func nothing(context.Context, *rig.Site, control.Instance, *ebpf.Program) error { return nil }

// connection is a connection to the service.
type connection struct {
	name, label    string // of its address family, added to those of a kind of packet
	client, server string
	stranger       string // a packet of no connection
}

var programConnections = []connection{
	{"4", "", "9.9.9.9:40001", "10.0.0.2:80", "9.9.9.9:40002"},
	{"6", ", IPv6", "[2400::9]:40001", "[fd00::2]:80", "[2400::9]:40002"},
}

func (c *connection) segment() string {
	return fmt.Sprintf("tcp %s > %s . seq=1001 ack=1001 len=1500", c.client, c.server)
}

func (c *connection) stray() string {
	return fmt.Sprintf("tcp %s > %s . seq=1001 ack=1001", c.stranger, c.server)
}

// serviceKinds returns packets to the service, except SYNs. The answer to a SYN overwrites the frame, and the kernel does not restore it between two
// runs.
func serviceKinds() (kinds []packetKind) {
	for _, c := range programConnections {
		kinds = append(kinds, packetKind{"segment" + c.name, "segment of a connection" + c.label, c.segment(), 0},
			packetKind{"stray" + c.name, "ACK of no connection" + c.label, c.stray(), 0})
	}
	return kinds
}

// connect makes the clients prove their addresses to a program. It sends their SYNs, and then ACKs of the program's answers.
func connect(_ context.Context, _ *rig.Site, _ control.Instance, p *ebpf.Program) error {
	for _, c := range programConnections {
		answer, err := programSend(p, fmt.Sprintf("tcp %s > %s S seq=1000", c.client, c.server), rig.XDPTX)
		if err != nil {
			return err
		}
		number := binary.BigEndian.Uint32(packet.Decode(answer).L4[4:])
		ack := fmt.Sprintf("tcp %s > %s . seq=1001 ack=%d", c.client, c.server, number+1)
		for _, s := range []struct {
			line string
			want uint32
		}{{ack, rig.XDPPass}, {c.segment(), rig.XDPPass}, {c.stray(), rig.XDPDrop}} {
			if _, err := programSend(p, s.line, s.want); err != nil {
				return err
			}
		}
	}
	return nil
}

// programSend runs a program on a packet. The program must return want. programSend returns the frame as the program left it.
func programSend(p *ebpf.Program, line string, want uint32) (after []byte, err error) {
	data, err := rig.Frame(line)
	if err != nil {
		return nil, err
	}
	o := ebpf.RunOptions{Data: data, DataOut: make([]byte, 2*len(data))}
	got, err := p.Run(&o)
	if err == nil && got != want {
		err = fmt.Errorf("XDP action %d, want %d", got, want)
	}
	if err != nil {
		return nil, fmt.Errorf("packet %q: %w", line, err)
	}
	return o.DataOut, nil
}

// The longest times of the program at egress in nanoseconds: for a packet that a service sends, and for a packet of a flow that it notes.
const (
	mostOfService = 10
	mostNoted     = 40
)

// leavingKinds are packets that a service sends, and packets of flows that began here.
var leavingKinds = []packetKind{
	{"leaves-service", "TCP, of a service", "tcp 10.0.0.2:80 > 9.9.9.9:40001 . seq=1 ack=1", mostOfService},
	{"leaves-tcp", "TCP, of a noted flow", "tcp 10.0.0.2:40001 > 9.9.9.9:443 . seq=1 ack=1", mostNoted},
	{"leaves-udp", "UDP, of a noted flow", "udp 10.0.0.2:40001 > 9.9.9.9:53", mostNoted},
	{"leaves-tcp6", "TCP, of a noted flow, IPv6", "tcp [fd00::2]:40001 > [2400::9]:443 . seq=1 ack=1", mostNoted},
}

// replyKinds returns answers to the packets of flows that began here.
func replyKinds() []packetKind {
	return []packetKind{
		{"reply-tcp", "TCP", "tcp 9.9.9.9:443 > 10.0.0.2:40001 . seq=1 ack=1 len=1500", 0},
		{"reply-udp", "UDP", "udp 9.9.9.9:53 > 10.0.0.2:40001 len=512", 0},
		{"reply-tcp6", "TCP, IPv6", "tcp [2400::9]:443 > [fd00::2]:40001 . seq=1 ack=1 len=1500", 0},
	}
}

// repliesColumn returns a policy with a service and its default for replies.
func repliesColumn(name string, leaving bool) column {
	return column{name: name, leaving: leaving, head: "replies: pass", text: fmt.Sprintf(serviceText, ""), prepare: begin}
}

// begin opens the flows of the packets, and sends answers in them.
func begin(_ context.Context, at *rig.Site, _ control.Instance, _ *ebpf.Program) error {
	return rig.BothSides(at.In.Name, func(xdp, egress *ebpf.Program) error {
		for i, reply := range replyKinds() {
			if err := rig.Leave(egress, leavingKinds[i+1].line); err != nil {
				return err
			}
			if _, err := programSend(xdp, reply.line, rig.XDPPass); err != nil {
				return err
			}
		}
		return nil
	})
}

// installEmptyLeaving is like installEmpty, but for packets that leave. For these the kernel has no dispatcher.
func installEmptyLeaving() (p *ebpf.Program, remove func() error, err error) {
	p, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return nil, nil, errors.Join(errors.New("an empty program for what leaves"), err)
	}
	return p, p.Close, nil
}

// floodPackets is more than the number of packets that a service of rig.UDPServices gets without a flood. This number exhausts the limit for all
// clients together.
const floodPackets = 200

// udpTable returns packets to a protected UDP service during a flood.
func (p *programs) udpTable(u rig.UDPService) *rig.Table {
	kinds := []packetKind{
		{"known", "of a known client", u.Known(), 0},
		{"refused", "of a flood, refused", u.Refused(), 0},
		{"begins", "of one who begins, refused", u.Beginning(), 0},
	}
	if u.Has != "" {
		kinds = append(kinds, packetKind{"proved", "with an identifier, from another address", u.Proved(), 0})
	}
	c := column{name: "udp=" + u.Protocol, head: "protect: " + u.Protocol, text: u.Policy()}
	c.prepare = func(_ context.Context, at *rig.Site, _ control.Instance, _ *ebpf.Program) error {
		return rig.BothSides(at.In.Name, func(xdp, egress *ebpf.Program) error {
			if err := u.Meet(xdp, egress); err != nil {
				return err
			}
			return u.Flood(xdp, floodPackets)
		})
	}
	return p.table("program: nanoseconds a packet to a UDP service in a flood, "+u.Protocol, kinds, c)
}
