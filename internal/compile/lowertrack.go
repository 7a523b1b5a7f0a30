package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/match"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/policy"
)

// untracked lowers what conntrack is kept away from besides services, and notes the rules that ask for a state which its packets do not
// have.
func (l *lowering) untracked(p *policy.Policy) (errs policy.Errors) {
	u := &l.program.Untracked
	u.All = slices.Contains(p.Untracked, policy.AllTraffic)
	u.Loopback = slices.Contains(p.Untracked, policy.Loopback)
	u.Multicast = slices.Contains(p.Untracked, policy.Multicast)
	u.Broadcast = slices.Contains(p.Untracked, policy.Broadcast)
	for _, e := range p.Exempt {
		errs = append(errs, l.changing(p, e)...)
		flow := ir.Rule{Line: e.Pos.Line}
		l.match(&flow, e.Match, false)
		flow.Name = l.program.FlowText(&flow)
		u.Flows = append(u.Flows, flow)
	}
	if errs == nil {
		l.statesNotHad()
	}
	return errs
}

// changing has an error for each set whose entries change while the policy runs: the exemption stands in netfilter alone, whichever
// target has the set.
func (l *lowering) changing(p *policy.Policy, e policy.Exempt) (errs policy.Errors) {
	for _, a := range slices.Concat(e.Match.From, e.Match.To) {
		if a.Set == "" || l.program.Sets[l.named[a.Set]].Fixed() != nil {
			continue
		}
		errs = append(errs, &policy.Error{File: p.File, Line: a.Pos.Line, Col: a.Pos.Col,
			Msg:  fmt.Sprintf("untracked: the addresses of set %q change while the policy runs", a.Set),
			Hint: "name the addresses, or a set that lists them"})
	}
	return errs
}

// statesNotHad notes rules whose state no untracked packet has, where they may match one by all else.
func (l *lowering) statesNotHad() {
	u := &l.program.Untracked
	for i := range l.program.Rules {
		r := &l.program.Rules[i]
		states := match.Values(r, packet.State)
		if !asksState(r) || (ir.Match{Values: states}).Has(packet.StateUntracked) {
			continue
		}
		kept := ""
		if u.All {
			kept = "any packet"
		}
		for j := range u.Flows {
			back := u.Flows[j].Reversed()
			if kept == "" && (match.Overlap(l.program.Sets, r, &u.Flows[j]) || match.Overlap(l.program.Sets, r, &back)) {
				kept = "packets of " + u.Flows[j].Name
			}
		}
		if kept != "" {
			l.notes = append(l.notes, fmt.Sprintf("line %d: %q asks for state %s and does not match %s: `untracked` gives these the state untracked",
				r.Line, r.Name, strings.TrimPrefix(ir.Match{Field: packet.State, Values: states}.String(), "state="), kept))
		}
	}
}

func asksState(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.State })
}
