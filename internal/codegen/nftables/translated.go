package nftables

import "github.com/floodwall/floodwall/internal/plan"

// directions are those of packets in their connection, as ct names them.
var directions = []string{"original", "reply"}

// translated begins a chain at filter with a line for packets whose destination NAT has translated. Chains of their own have
// the rules for them, which ask conntrack for the destination that the packets came in with: that of the connection, in the
// packet's direction. The source is the packet's still (net/netfilter/nf_nat_core.c, nf_nat_packet: the source is translated
// behind filter).
func (n *generator) translated(steps []plan.Step, p chainInput) {
	if !n.plan.SeesTranslated() {
		return
	}
	n.remark("translated destinations: the rules mean the one that was asked for")
	n.line("ct status snat,dnat goto", n.called("translated", func() {
		for _, d := range directions {
			name := "translated-" + d
			n.line("ct direction "+d, "goto", n.called(name, func() {
				p.direction = d
				n.steps(name, steps, plan.StageFilter, p)
			}))
		}
	}))
}
