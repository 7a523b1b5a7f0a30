// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
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
