// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// LimitNotes returns notes about limits that a target cannot enforce exactly. In XDP, a flood of random sources could fill the limit's table. In
// netfilter, the units of time may be too coarse for the rate.
func LimitNotes(p *ir.Program, target plan.Target) []string {
	if target == plan.TargetXDP {
		return xdpgen.LimitNotes(p)
	}
	return plan.RateNotes(p, target)
}

// ListNotes returns notes about lists in which lines were skipped, and about lists that contain a large share of all IPv4 addresses.
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

// largeShare is the smallest percentage of all IPv4 addresses for which a list gets a note. Lists of bogons, which include all addresses that hosts
// cannot have, contain 20%.
const largeShare = 25

// FragmentNotes returns notes about rules for fragments that match no packet on a target. On that target, the rule for replies needs conntrack, which
// reassembles fragments before they reach such rules.
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
