// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// RandomlyPlaced returns a copy of a program with random placements. The target can run each rule at its placement.
func RandomlyPlaced(r *rand.Rand, p *ir.Program, target plan.Target) *ir.Program {
	out := *p
	out.Rules = slices.Clone(p.Rules)
	any := func() ir.Placement {
		words := []ir.Placement{"", ir.PlaceAuto, ir.PlaceEarliest}
		for _, s := range StagesOf[target] {
			words = append(words, ir.Placement(s))
		}
		return words[r.IntN(len(words))]
	}
	if r.IntN(2) == 0 {
		out.Placement = any()
	}
	for i := range out.Rules {
		alone := ir.Program{Sets: p.Sets, Names: p.Names, Limits: p.Limits, Checks: p.Checks, Protections: p.Protections, Rules: []ir.Rule{out.Rules[i]}}
		alone.Rules[0].Placement = any()
		if _, err := plan.Hoist(&alone, target); err == nil {
			out.Rules[i].Placement = alone.Rules[0].Placement
		}
	}
	return &out
}

// StagesOf are the stages of each target, in the order in which a packet reaches them.
var StagesOf = map[plan.Target][]plan.Stage{
	plan.TargetXDP:      {plan.StageXDP, plan.StageIngress, plan.StageRaw, plan.StageFilter},
	plan.TargetNftables: {plan.StageIngress, plan.StageRaw, plan.StageFilter},
	plan.TargetIptables: {plan.StageRaw, plan.StageFilter},
}

// StatefulSubject returns a random policy without checks. Some of its rules test a connection state or the payload, have limits, reject packets, or
// only observe.
func StatefulSubject(t *testing.T, r *rand.Rand, rules int) *Subject {
	w := &Writer{Rand: r, Payload: r.IntN(3) == 0}
	text, dynamic := w.Policy(t, rules)
	s := Lower(t, text)
	for _, name := range dynamic {
		s.Insert(t, name, w.Members())
	}
	if s.HasLocal() {
		s.Insert(t, "local", w.Members())
	}
	s.Program.Checks = 0
	for i := range s.Program.Rules {
		rule := &s.Program.Rules[i]
		if r.IntN(4) == 0 {
			first := uint32(r.IntN(int(packet.State.Size())))
			last := first + uint32(r.IntN(int(packet.State.Size()-first)))
			rule.Match = append(rule.Match, ir.Match{Field: packet.State, Values: []ir.Range{{First: first, Last: last}}})
		}
		if rule.Verdict == ir.Drop && r.IntN(4) == 0 {
			rule.Verdict = ir.Reject
		}
		if r.IntN(12) == 0 {
			s.limit(rule, 1+r.IntN(2))
		}
		if r.IntN(12) == 0 {
			rule.Observe = true
		}
	}
	return s
}

// limit adds limits to a rule.
func (s *Subject) limit(rule *ir.Rule, layers int) {
	for i := range layers {
		rule.Over = append(rule.Over, len(s.Program.Limits))
		s.Program.Limits = append(s.Program.Limits, ir.Limit{
			Rule: rule.Name, Rate: 10, Per: time.Second, Burst: 10, Src: &ir.Prefixes{V4: 32 - 8*i, V6: 64 - 8*i}, Max: 1000,
		})
	}
}

// Counter returns the name of the counter that must count a frame, according to Eval. The parameters checks, rules and otherwise are the counter
// names from the target's generator.
func (s *Subject) Counter(frame []byte, checks map[packet.Check]string, rules []string, otherwise string) string {
	pkt := packet.Decode(frame)
	switch _, reason := s.Program.Eval(&pkt, ir.World{Member: s.Has}); reason.Kind {
	case ir.ReasonCheck:
		return checks[packet.Check(reason.Index)]
	case ir.ReasonRule:
		return rules[reason.Index]
	}
	return otherwise
}
