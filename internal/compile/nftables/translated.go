// SPDX-License-Identifier: Apache-2.0

package nftables

import "github.com/floodwall/floodwall/internal/compile/plan"

// directions are the directions of packets in their connection, in the words of ct. Each has the kind of NAT that changes a packet's destination:
// dnat in the original direction, snat in the reply direction.
var directions = []struct{ name, status string }{{"original", "dnat"}, {"reply", "snat"}}

// translated writes lines at the start of a filter chain that send packets with a translated destination to chains of their own. The rules in these
// chains read the original destination from conntrack: the destination of the connection, in the packet's direction. The source is still that of the
// packet, because the kernel translates the source after filter (net/netfilter/nf_nat_core.c, nf_nat_packet).
func (n *generator) translated(steps []plan.Step, p chainInput) {
	if !n.plan.SeesTranslated() {
		return
	}
	n.remark("translated destinations: the rules mean the one that was asked for")
	for _, d := range directions {
		name := "translated-" + d.name
		n.line("ct status "+d.status, "ct direction "+d.name, "goto", n.called(name, func() {
			p.direction = d.name
			n.steps(name, steps, plan.StageFilter, p)
		}))
	}
}
