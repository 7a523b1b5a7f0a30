package nftables

import (
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// untracked writes the chains that keep packets out of conntrack: those of a service by its port, which comes in from
// outside as destination and goes back as source, from this host or, through it, from the one that serves. A packet with
// the port as source that comes in from outside, or from another device for this host, is no such answer: it may belong
// to a connection that this host began. One that comes in by another device for a third one is taken for an answer, as
// it is not routed yet: connections between other devices to a server with that port are tracked in one direction.
func (n *generator) untracked() {
	u := n.plan.Program.Untracked
	if !u.Loopback && len(u.Services) == 0 {
		return
	}
	n.untrackedChain("untracked", "prerouting", "iif", func(s ir.UntrackedService) {
		n.notrack("iifname "+n.outside(), s, packet.DPort, "")
		n.notrack("iifname != "+n.outside(), s, packet.SPort, "fib daddr type != local")
	})
	n.untrackedChain("untracked-output", "output", "oif", func(s ir.UntrackedService) {
		n.notrack("oifname "+n.outside(), s, packet.SPort, "")
	})
}

// untrackedChain writes the chain of a hook; device is the key for the one that a packet has there.
func (n *generator) untrackedChain(name, hook, device string, service func(ir.UntrackedService)) {
	n.chain(name, hook+" priority "+priorityRaw)
	if n.plan.Program.Untracked.Loopback {
		n.line(device + ` "lo" notrack`)
	}
	for _, s := range n.plan.Program.Untracked.Services {
		n.remark("service %s", s.Name)
		service(s)
	}
	n.end()
}

// notrack writes the lines for a service's ports in a field, with a last test that may be empty. The chain goes on behind
// them. It has no fragments: where conntrack is in use, it has put them together before.
func (n *generator) notrack(device string, s ir.UntrackedService, port packet.Field, last string) {
	for _, l := range n.lines(&ir.Rule{Match: []ir.Match{{Field: port, Values: s.Ports}}}, chainInput{fragments: firstFragment}) {
		n.line(device, l.text, last, "notrack")
	}
}
