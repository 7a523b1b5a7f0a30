// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// untracked writes the chains that exempt packets from conntrack. A service is exempt by its port. The port is the destination of packets from
// outside, and the source of the answers, which come from this host or through it from the host of the service. A packet with that source port that
// arrives from outside, or from another device for this host, is not such an answer: it may belong to a connection that this host has opened. A
// packet that arrives by another device for a third host counts as an answer, because it is not routed yet. So connections between other devices to a
// server with that port are tracked in one direction only. A service of this host itself has no such forwarded answers: NAT may redirect connections
// of another port to that port of a container.
//
// Other exempt traffic is exempt in both directions, on all devices, so conntrack sees neither direction.
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

// untrackedChain writes the chain of a hook. device is the key for the packet's device at that hook. service writes the lines of a service.
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

// notrack writes the lines for the ports of a service in the field port. last is an additional test, or "". After these lines, packets continue with
// the next line. If conntrack is in use, no fragments reach the chain, because conntrack has reassembled them.
func (n *generator) notrack(device string, s ir.UntrackedService, port packet.Field, last string) {
	for _, l := range n.lines(&ir.Rule{Match: []ir.Match{{Field: port, Values: s.Ports}}}, chainInput{fragments: firstFragment}) {
		n.line(device, l.text, last, "notrack")
	}
}

// untrackedFlows writes the lines for traffic that is exempt in both directions.
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
				if !slices.Contains(written, l.text) { // if a rule tests only the protocol, both directions give the same line
					written = append(written, l.text)
					n.line(l.text, "notrack")
				}
			}
		}
	}
}
