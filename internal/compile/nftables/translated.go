package nftables

import "github.com/floodwall/floodwall/internal/compile/plan"

// directions are those of packets in their connection, as ct names them, with the translation that changes the destination of a
// packet: of the destination on the way there, of the source on the way back.
var directions = []struct{ name, status string }{{"original", "dnat"}, {"reply", "snat"}}

// translated begins a chain at filter with lines for packets whose destination NAT has translated. Chains of their own have
// the rules for them, which ask conntrack for the destination that the packets came in with: that of the connection, in the
// packet's direction. The source is the packet's still (net/netfilter/nf_nat_core.c, nf_nat_packet: the source is translated
// behind filter).
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
