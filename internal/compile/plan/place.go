package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// Costs are the predictions by which a plan was chosen.
type Costs struct {
	Predicted cost.Prediction `json:"predicted"` // of the plan
	Earliest  cost.Prediction `json:"earliest"`  // of the plan with all as early as can be
	Others    []Alternative   `json:"others"`    // the best of those that were not chosen, the cheapest first
}

// Alternative is what a plan would have cost.
type Alternative struct {
	What      string          `json:"what"` // which rules run where: "all at filter"
	Predicted cost.Prediction `json:"predicted"`
}

// Place is Hoist, but for rules whose placement is auto: it looks for the stages at which all of it costs least, on a
// host with these costs, with packets as observed. A rule is moved only
//   - where Hoist's property holds, which keeps all verdicts,
//   - when it drops or passes by addresses and fields that are the same at all stages it can move to,
//   - to stages that its packets come to, and
//   - when the policy's default is pass: what moves behind a default that drops would be dropped by that.
//
// Without a model, or when no packets were observed, all is as Hoist says. It tries some dozens of plans, less for thousands
// of rules: each rule with many packets by itself, those together that save something, and all.
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
	cheapest   Alternative // that is best
	model      *cost.Model
	mix        cost.Mix
	tried      map[string]bool // by the stages of all rules
	rejected   []Alternative
}

// run tries moves from the best plan so far, until a round over all stages has found no better one.
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

// toStage tries to move rules to a stage: all of them, all but the few that decide most packets, and those few.
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

// most is how many rules are told apart by their packets, fewer in long policies, whose plans take longer to make.
func (s *search) most() int {
	if len(s.base.Rules) > 1000 {
		return 2
	}
	return 16
}

// movable are the rules that may run at a stage and do not.
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

// hottest are the rules that drop packets, those with most of them first.
func (s *search) hottest(rules []int) []int {
	list := slices.DeleteFunc(slices.Clone(rules), func(i int) bool { return s.dropped(i) == 0 })
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(s.dropped(b), s.dropped(a)) })
	return list
}

// dropped is the number of packets that a rule drops.
func (s *search) dropped(i int) uint64 {
	if r := &s.base.Program.Rules[i]; r.Verdict == ir.Drop {
		return s.mix.Rules[r.Name]
	}
	return 0
}

// saving are the rules that save work at a stage where fewer packets come to them, those that save most first.
func (s *search) saving(rules []int, stage Stage) []int {
	gain := map[int]float64{}
	for _, i := range rules {
		gain[i] = s.gain(i, stage)
	}
	list := slices.DeleteFunc(slices.Clone(rules), func(i int) bool { return gain[i] <= 0 })
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(gain[b], gain[a]) })
	return list
}

// gain estimates the nanoseconds that a rule saves when it moves, from what it asks of packets by itself.
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

// withBefore are rules and those before them that would force them to follow.
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

// names lists a few rules.
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

// try makes the best plan so far with some rules at another stage, and keeps it when it is better.
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

// judge keeps the cheaper of a plan and the best so far.
func (s *search) judge(a Alternative, pl *Plan) {
	if a.Predicted.CPU < s.cheapest.Predicted.CPU {
		s.best, s.cheapest, a = pl, a, s.cheapest
	}
	s.rejected = append(s.rejected, a)
}

// overtaken reports whether a rule with packets would lose them to one behind it with the same verdict: of that nothing is
// predicted.
func (s *search) overtaken(pl *Plan) bool {
	rules := pl.Program.Rules
	var early []int // rules that others could have been moved behind
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

// others are the cheapest of the plans that were not chosen.
func (s *search) others() []Alternative {
	const most = 3
	slices.SortStableFunc(s.rejected, func(a, b Alternative) int { return cmp.Compare(a.Predicted.CPU, b.Predicted.CPU) })
	return s.rejected[:min(len(s.rejected), most)]
}

// explain adds the figures to why rules are where they are.
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
