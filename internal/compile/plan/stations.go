// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Predict returns the cost of the plan for a mix of packets. This mix may differ from the one for which the plan was made.
func (pl *Plan) Predict(m *cost.Model, mix cost.Mix) cost.Prediction {
	return m.Predict(string(pl.Target), pl.stations(), mix)
}

// Same reports whether another plan of the same program has all rules and the default at the same stages.
func (pl *Plan) Same(o *Plan) bool {
	same := func(a, b Assignment) bool { return a.Stage == b.Stage && a.Also == b.Also }
	return pl.Target == o.Target && same(pl.Default, o.Default) && slices.EqualFunc(pl.Rules, o.Rules, same)
}

// stations returns the work that packets cause in the plan, in the types of package cost.
func (pl *Plan) stations() (list []cost.Station) {
	for _, s := range pl.Target.stages() {
		if !pl.Stands(s) {
			continue
		}
		steps := pl.At(s)
		if s != StageFilter {
			list = append(list, pl.station(s, cost.All, steps))
			continue
		}
		list = append(list, pl.station(s, cost.Local, steps))
		if pl.Target == TargetIptables || pl.Forwards(steps) {
			list = append(list, pl.station(s, cost.Forwarded, steps))
		}
	}
	return list
}

// Stands reports whether Floodwall has any code at a stage: rules, checks, the default, or the XDP program. The XDP program is always there, because
// it has other tasks, too.
func (pl *Plan) Stands(s Stage) bool {
	return s == StageXDP || pl.CheckedAt(s) || pl.Default.At(s) || pl.Uses(s)
}

func allChecks(of packet.CheckSet) (list []packet.Check) {
	for c := range packet.NumChecks {
		if of.Has(c) {
			list = append(list, c)
		}
	}
	return list
}

func (pl *Plan) station(s Stage, flow cost.Flow, steps []Step) cost.Station {
	out := cost.Station{Stage: string(s), Flow: flow, Steps: make([]cost.Step, 0, len(steps)+1)}
	out.Steps = append(out.Steps, cost.Step{Each: pl.once(s, steps)})
	if flow == cost.Forwarded { // rules that match only packets to this host are in the input chain
		steps = slices.DeleteFunc(slices.Clone(steps), func(step Step) bool { return pl.flow(&pl.Program.Rules[step.Rule]) == cost.Local })
	}
	lookups := pl.lookups(s, steps)
	for i, step := range steps {
		r := pl.Of(step, s)
		one := cost.Step{Rule: r.Name, Flow: pl.flow(r), Drops: r.Verdict != ir.Pass && !r.Observe}
		if r.Observe || step.Wait { // its packets continue with the next step
			one.Rule = ""
		}
		switch {
		case s != StageXDP:
			one.Each, one.Matched = pl.asked(r, flow)
			if rules, ok := lookups[i]; ok {
				one.Each = cost.Asked{Rules: rules}
			}
		case i < tabled:
			one.Each.Rules = 1
			one.Matched.Limits = limits(r)
		}
		out.Steps = append(out.Steps, one)
	}
	return out
}

// lookups returns the steps of a stage in nftables that are replaced by verdict maps, by index. The value is the cost of the replacement, in rules.
func (pl *Plan) lookups(s Stage, steps []Step) map[int]int {
	if s == StageXDP || pl.Target == TargetIptables {
		return nil
	}
	list := make([]Rule, len(steps))
	for i, step := range steps {
		r := pl.Of(step, s)
		list[i] = Rule{Rule: r, Lines: 1, Fixed: r.Protect > 0}
	}
	return Asked(Arrange(pl.Program.Sets, list))
}

// tabled is the number of rules in XDP above which further rules add no cost. The program then looks up rows of tables, which costs about as much as
// this many rules in sequence.
const tabled = 40

// once returns the work that a stage does for each packet before its rules. In XDP it is the lookup of the classes and dynamic sets of both
// addresses. In nftables it is the tests for packets from outside and for later fragments, unless the rules make these tests.
func (pl *Plan) once(s Stage, steps []Step) (a cost.Asked) {
	switch {
	case s == StageXDP:
		for _, step := range steps {
			r := pl.Of(step, s)
			a.Sets = max(a.Sets, min(len(r.Src), 1)+min(len(r.Dst), 1))
			a.Locals = max(a.Locals, pl.locals(r))
		}
		return a
	case pl.Target == TargetIptables:
		return a
	}
	if s != StageIngress && !pl.AsksDeviceLast(s, steps) {
		a.Rules += deviceRules
	}
	if s != StageIngress && pl.DefaultActs(s) {
		a.Rules += defaultRules
	}
	if pl.PartsFragments(s, steps) {
		a.Rules += 2
	}
	return a
}

// asked returns the work of a rule in netfilter. each is the work for every packet. matched is the additional work for packets that pass the tests in
// each: the tests for the host's own addresses, which come last, and the limits.
func (pl *Plan) asked(r *ir.Rule, flow cost.Flow) (each, matched cost.Asked) {
	each.Rules = 1
	for side, matches := range match.Sides(r) {
		for _, m := range matches {
			for _, set := range m.Sets {
				switch s := &pl.Program.Sets[set]; {
				case match.IsLocal(s) && side == match.DstSide && flow == cost.Forwarded: // forwarded packets are in another chain, so there is no test
				case match.IsLocal(s):
					matched.Locals++
				case s.Dynamic != nil:
					each.Sets += 2 // one for addresses and one for prefixes
				case s.Name != "" || s.Static.Size() > Inline:
					each.Sets++
				}
			}
		}
	}
	matched.Limits = limits(r)
	if len(r.Match) == 0 && each.Sets == 0 && len(r.Src)+len(r.Dst) == 1 { // the rule has no other test
		each.Locals, matched.Locals = matched.Locals, 0
	}
	return each, matched
}

// limits returns the number of limits of a rule. A limit of connections costs about as much as a rate limit.
func limits(r *ir.Rule) int {
	if r.Connections != nil {
		return len(r.Over) + 1
	}
	return len(r.Over)
}

// locals returns the number of a rule's tests for the host's own addresses.
func (pl *Plan) locals(r *ir.Rule) (n int) {
	for _, matches := range match.Sides(r) {
		for _, m := range matches {
			n += len(slices.DeleteFunc(slices.Clone(m.Sets), func(i int) bool { return !match.IsLocal(&pl.Program.Sets[i]) }))
		}
	}
	return n
}

// flow returns the packets that a rule can match: packets to this host, forwarded packets, or both.
func (pl *Plan) flow(r *ir.Rule) cost.Flow {
	for _, m := range r.Dst {
		only := !slices.ContainsFunc(m.Sets, func(i int) bool { return !match.IsLocal(&pl.Program.Sets[i]) })
		switch {
		case only && !m.Not:
			return cost.Local
		case only:
			return cost.Forwarded
		}
	}
	return cost.All
}
