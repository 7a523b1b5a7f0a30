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

// ListNotes warn of lists with lines that were left out, and of those that have a large part of all IPv4 addresses.
func ListNotes(p *ir.Program) (notes []string) {
	for _, s := range p.Sets {
		if s.Odd != "" {
			notes = append(notes, fmt.Sprintf("set %q: %s", s.Name, s.Odd))
		}
		if s.Name == "" || s.Fixed() == nil {
			continue
		}
		if share := s.Static.Addresses4() * 100 >> 32; share >= largeShare {
			notes = append(notes, fmt.Sprintf("set %q has %d%% of all IPv4 addresses: look whether a line of it is shorter than meant", s.Name, share))
		}
	}
	return notes
}

// largeShare is the percentage of all addresses from which a list deserves a look: with those that are no host's, bogons are 20%.
const largeShare = 25

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
