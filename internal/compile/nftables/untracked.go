package nftables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// untracked writes the chains that keep packets out of conntrack: those of a service by its port, which comes in from
// outside as destination and goes back as source, from this host or, through it, from the one that serves. A packet with
// the port as source that comes in from outside, or from another device for this host, is no such answer: it may belong
// to a connection that this host began. One that comes in by another device for a third one is taken for an answer, as
// it is not routed yet: connections between other devices to a server with that port are tracked in one direction.
// A service that this host serves has no such answer: NAT may send connections of another port on to that port of a container.
//
// What is named otherwise is exempted by itself and in the other direction, whatever device it passes, so conntrack sees no side of it.
func (n *generator) untracked() {
	if n.plan.Program.Untracked.None() {
		return
	}
	n.untrackedChain("untracked", "prerouting", "iif", func(s ir.UntrackedService) {
		if s.Here {
			n.notrack("iifname "+n.outside(), s, packet.DPort, "fib daddr type local")
			return
		}
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
	n.untrackedFlows()
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

// untrackedFlows writes the lines for what is exempted in both directions.
func (n *generator) untrackedFlows() {
	u := &n.plan.Program.Untracked
	if u.All {
		n.line("notrack")
		return
	}
	if u.Multicast {
		n.line("ip daddr 224.0.0.0/4 notrack")
		n.line("ip6 daddr ff00::/8 notrack")
	}
	if u.Broadcast {
		n.line("meta nfproto ipv4 fib daddr type broadcast notrack")
	}
	for i := range u.Flows {
		flow := &u.Flows[i]
		n.remark("%s", flow.Name)
		back := flow.Reversed()
		var written []string
		for _, r := range []*ir.Rule{flow, &back} {
			for _, l := range n.lines(r, chainInput{fragments: firstFragment}) {
				if !slices.Contains(written, l.text) { // of a protocol alone both directions are one
					written = append(written, l.text)
					n.line(l.text, "notrack")
				}
			}
		}
	}
}
