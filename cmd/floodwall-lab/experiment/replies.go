package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

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
