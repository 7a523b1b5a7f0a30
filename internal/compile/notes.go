package compile

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// LimitNotes warns of limits that a target cannot keep as written: in XDP if a flood of random sources could fill the table, in netfilter
// if its units of time are coarse for the rate.
func LimitNotes(p *ir.Program, target plan.Target) []string {
	if target == plan.TargetXDP {
		return xdpgen.LimitNotes(p)
	}
	return plan.RateNotes(p, target)
}

// FragmentNotes name the rules about fragments that do nothing on a target, as conntrack, which tells replies, puts fragments together before.
func FragmentNotes(p *ir.Program, target plan.Target) (notes []string) {
	if target != plan.TargetIptables || !slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return asksReply(&r) }) {
		return nil
	}
	for _, r := range p.Rules {
		said := r.Kind == ir.RuleKindRule || r.Name == fragmentsOff
		if said && slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.Fragment }) {
			notes = append(notes, fmt.Sprintf("%s%q sees no fragments on iptables: conntrack, which tells replies, has put them together; `replies: drop` leaves it out",
				p.Place(r.Line, r.Col), r.Name))
		}
	}
	return notes
}
