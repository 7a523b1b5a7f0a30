// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// Costs are the predicted costs on which the choice of a plan was based.
type Costs struct {
	Predicted cost.Prediction `json:"predicted"` // of the plan
	Earliest  cost.Prediction `json:"earliest"`  // of the plan with each rule at its earliest stage
	Others    []Alternative   `json:"others"`    // the cheapest plans that were not chosen, in ascending order of cost
}

// Alternative is a plan that was considered, and its predicted cost.
type Alternative struct {
	What      string          `json:"what"` // describes the placement: "all at filter"
	Predicted cost.Prediction `json:"predicted"`
}

// Place is Hoist with a choice of stages by cost: for rules whose placement is auto, it searches for the stages at
// which the whole program costs least, by the cost model m of the host and the observed mix of packets. It moves a rule
// only
//   - if the conditions of Hoist hold, which keep all verdicts,
//   - if the rule drops or passes by addresses and fields that have the same values at all stages to which it can move,
//   - to stages that its packets reach, and
//   - if the policy's default is pass: a default that drops would drop the packets of a rule that moves behind it.
//
// Without a model, or without observed packets, Place returns the plan of Hoist. It tries some dozens of plans, fewer for thousands of rules: it
// moves each rule with many packets alone, the rules that save work together, and all rules.
func Place(p *ir.Program, t Target, m *cost.Model, mix cost.Mix) (*Plan, error) {
	base, err := Hoist(p, t)
	if err != nil {
		return nil, err
	}
	base.free = freedomOf(base, mix)
	if m == nil || mix.Arrived == 0 {
		return base, nil
	}
	earliest := Alternative{"all as early as can be", base.Predict(m, mix)}
	s := &search{base: base, best: base, free: base.free, cheapest: earliest, model: m, mix: mix, tried: map[string]bool{}}
	if p.Default == ir.Pass {
		s.run()
	}
	s.best.free = base.free
	s.best.Costs = &Costs{Predicted: s.cheapest.Predicted, Earliest: earliest.Predicted, Others: s.others()}
	s.explain()
	return s.best, nil
}

// search is the state of Place.
type search struct {
	base, best *Plan
	free       *freedom
	cheapest   Alternative // the chosen plan and its cost
	model      *cost.Model
	mix        cost.Mix
	tried      map[string]bool // the plans that were tried; the key is the stages of all rules
	rejected   []Alternative
}

// run tries moves from the best plan so far. It ends when a round over all stages has found no better plan.
func (s *search) run() {
	const rounds = 3
	for range rounds {
		before := s.best
		for _, stage := range s.base.Target.stages() {
			s.toStage(stage)
		}
		if s.best == before {
			return
		}
	}
}

// toStage tries to move three groups of rules to a stage: all rules, all except the few that decide most packets, and only those few.
func (s *search) toStage(stage Stage) {
	movable := s.movable(stage)
	if len(movable) == 0 {
		return
	}
	s.try(fmt.Sprintf("all at %s", stage), movable, stage)
	hot := s.hottest(movable)
	for n := 1; n <= len(hot) && n < len(movable) && n <= s.most(); n *= 2 {
		early := s.withBefore(hot[:n])
		rest := slices.DeleteFunc(slices.Clone(movable), func(i int) bool { return slices.Contains(early, i) })
		s.try(fmt.Sprintf("all but %s at %s", s.names(hot[:n]), stage), rest, stage)
		s.try(fmt.Sprintf("%s at %s", s.names(hot[:n]), stage), hot[:n], stage)
	}
	saving := s.saving(movable, stage)
	for n := 1; n <= len(saving) && n <= s.most(); n *= 2 {
		s.try(fmt.Sprintf("%s at %s", s.names(saving[:n]), stage), saving[:n], stage)
	}
}

// most returns the largest number of rules that a try moves because of their packet counts. It is lower for long policies, because their plans take
// longer to compute.
func (s *search) most() int {
	if len(s.base.Rules) > 1000 {
		return 2
	}
	return 16
}

// movable returns the rules that may run at a stage but currently run at another one.
func (s *search) movable(stage Stage) (list []int) {
	for i, place := range s.base.Rules {
		if s.best.Rules[i].Stage == stage || s.base.after(place.Stage, stage) || !s.free.may(i, stage) {
			continue
		}
		if key, _ := s.base.Unfit(&s.base.Program.Rules[i], stage); key == "" {
			list = append(list, i)
		}
	}
	return list
}

// hottest returns the rules that drop packets, in descending order of their packet counts.
func (s *search) hottest(rules []int) []int {
	list := slices.DeleteFunc(slices.Clone(rules), func(i int) bool { return s.dropped(i) == 0 })
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(s.dropped(b), s.dropped(a)) })
	return list
}

// dropped returns the number of packets that a rule drops.
func (s *search) dropped(i int) uint64 {
	if r := &s.base.Program.Rules[i]; r.Verdict == ir.Drop {
		return s.mix.Rules[r.Name]
	}
	return 0
}

// saving returns the rules that would cost less at a stage because fewer packets reach them there, in descending order of the saving.
func (s *search) saving(rules []int, stage Stage) []int {
	gain := map[int]float64{}
	for _, i := range rules {
		gain[i] = s.gain(i, stage)
	}
	list := slices.DeleteFunc(slices.Clone(rules), func(i int) bool { return gain[i] <= 0 })
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(gain[b], gain[a]) })
	return list
}

// gain estimates the nanoseconds that moving a rule saves, from the cost of its own tests alone.
func (s *search) gain(i int, stage Stage) float64 {
	r := &s.base.Program.Rules[i]
	each, matched := s.base.asked(r, cost.All)
	step := cost.Step{Drops: r.Verdict != ir.Pass, Each: each, Matched: matched}
	decided := float64(s.mix.Rules[r.Name])
	alone := func(at Stage, come uint64) float64 {
		return s.model.Rule(string(s.base.Target), string(at), &step, max(float64(come), decided), decided, s.mix.Tracked)
	}
	come := s.mix.Arrived
	if stage == StageFilter && s.base.flow(r) == cost.Local {
		come = s.mix.Local
	}
	return alone(s.best.Rules[i].Stage, s.mix.Arrived) - alone(stage, come)
}

// withBefore returns rules together with the earlier rules that conflict with them. Without these earlier rules, the move would be undone.
func (s *search) withBefore(rules []int) []int {
	p := s.base.Program
	out := slices.Clone(rules)
	for _, i := range rules {
		for j := range i {
			if !commute(&p.Rules[j], &p.Rules[i]) && match.Overlap(p.Sets, &p.Rules[j], &p.Rules[i]) {
				out = append(out, j)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// names returns a text with the names of a few of the rules.
func (s *search) names(rules []int) string {
	if len(rules) > 2 {
		return fmt.Sprintf("%q and %d more", s.base.Program.Rules[rules[0]].Name, len(rules)-1)
	}
	text := fmt.Sprintf("%q", s.base.Program.Rules[rules[0]].Name)
	if len(rules) == 2 {
		text += fmt.Sprintf(" and %q", s.base.Program.Rules[rules[1]].Name)
	}
	return text
}

// try computes a variant of the best plan so far, with some rules at another stage. It keeps the variant if it is cheaper. what describes the
// variant.
func (s *search) try(what string, rules []int, stage Stage) {
	from := make([]Stage, len(s.base.Rules))
	copy(from, s.best.From)
	for _, i := range rules {
		from[i] = stage
		if stage == s.base.Rules[i].Stage {
			from[i] = ""
		}
	}
	key := fmt.Sprint(from)
	if s.tried[key] {
		return
	}
	s.tried[key] = true
	pl, err := HoistFrom(s.base.Program, s.base.Target, from)
	if err != nil || !s.free.permits(pl) || s.overtaken(pl) {
		return
	}
	s.judge(Alternative{what, pl.Predict(s.model, s.mix)}, pl)
}

// judge compares a plan with the best plan so far, and keeps the cheaper one.
func (s *search) judge(a Alternative, pl *Plan) {
	if a.Predicted.CPU < s.cheapest.Predicted.CPU {
		s.best, s.cheapest, a = pl, a, s.cheapest
	}
	s.rejected = append(s.rejected, a)
}

// overtaken reports whether a rule that has packets would lose them to a later rule with the same verdict. The cost model does not predict that
// effect.
func (s *search) overtaken(pl *Plan) bool {
	rules := pl.Program.Rules
	var early []int // rules that may now come before rules that precede them in the policy
	for j, place := range pl.Rules {
		if place.Stage != StageFilter && !rules[j].Observe {
			early = append(early, j)
		}
	}
	for i, place := range pl.Rules {
		if pl.From[i] == "" || s.dropped(i) == 0 {
			continue
		}
		for _, j := range early {
			if j > i && pl.after(place.Stage, pl.Rules[j].Stage) && match.Overlap(pl.Program.Sets, &rules[i], &rules[j]) {
				return true
			}
		}
	}
	return false
}

// others returns the cheapest plans that were not chosen.
func (s *search) others() []Alternative {
	const most = 3
	slices.SortStableFunc(s.rejected, func(a, b Alternative) int { return cmp.Compare(a.Predicted.CPU, b.Predicted.CPU) })
	return s.rejected[:min(len(s.rejected), most)]
}

// explain adds the predicted costs to the reasons of the assignments.
func (s *search) explain() {
	if len(s.rejected) == 0 {
		return
	}
	chosen, other := s.cheapest, s.others()[0]
	seconds := max(s.mix.Seconds, 1e-9)
	figures := fmt.Sprintf("of %.0f packets/s, each of which costs %.1f ns; with %s %.1f ns", float64(s.mix.Arrived)/seconds,
		chosen.Predicted.PerPacket, other.What, other.Predicted.PerPacket)
	for i := range s.best.Rules {
		r, place := &s.base.Program.Rules[i], &s.best.Rules[i]
		wish, _ := s.base.Program.PlacementOf(r)
		if wish != ir.PlaceAuto || !steady(r) {
			continue
		}
		if place.Stage != s.base.Rules[i].Stage && s.best.From[i] != "" {
			place.Why = "costs least here"
		}
		place.Why += fmt.Sprintf("; it decides %.0f %s", float64(s.mix.Rules[r.Name])/seconds, figures)
	}
}
