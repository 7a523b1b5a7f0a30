package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Predict is the cost of the plan with a mix of packets, which may differ from the mix it was made for.
func (pl *Plan) Predict(m *cost.Model, mix cost.Mix) cost.Prediction {
	return m.Predict(string(pl.Target), pl.stations(), mix)
}

// Same reports whether another plan of the same program has all rules and the default at the same stages.
func (pl *Plan) Same(o *Plan) bool {
	same := func(a, b Assignment) bool { return a.Stage == b.Stage && a.Also == b.Also }
	return pl.Target == o.Target && same(pl.Default, o.Default) && slices.EqualFunc(pl.Rules, o.Rules, same)
}

// stations are the work of the plan for packets, in the terms of package cost.
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

// Stands reports whether packets meet anything of ours at a stage: rules, checks, the default, or the program in XDP, which
// stays for what else it does.
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
	if flow == cost.Forwarded { // what is for this host alone stands in the input chain
		steps = slices.DeleteFunc(slices.Clone(steps), func(step Step) bool { return pl.flow(&pl.Program.Rules[step.Rule]) == cost.Local })
	}
	lookups := pl.lookups(s, steps)
	for i, step := range steps {
		r := pl.Of(step, s)
		one := cost.Step{Rule: r.Name, Flow: pl.flow(r), Drops: r.Verdict != ir.Pass && !r.Observe}
		if r.Observe || step.Wait { // its packets go on
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

// lookups are the steps of a stage in nftables that verdict maps replace, by their index, with the number of rules that a packet is tested
// against in their place.
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

// tabled is the number of rules in XDP from which on further ones cost nothing: a packet then selects rows of tables, which cost about as
// much as this many rules in sequence.
const tabled = 40

// once is the work of a stage for each packet before its rules. In XDP: the classes of both addresses, and their dynamic sets. In nftables:
// the tests for packets from outside and for later fragments, unless rules make them.
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

// asked is the work of a rule in netfilter for each packet, and for those that match all its other tests: tests for the host's own
// addresses, which are written last, and limits.
func (pl *Plan) asked(r *ir.Rule, flow cost.Flow) (each, matched cost.Asked) {
	each.Rules = 1
	for side, matches := range match.Sides(r) {
		for _, m := range matches {
			for _, set := range m.Sets {
				switch s := &pl.Program.Sets[set]; {
				case match.IsLocal(s) && side == match.DstSide && flow == cost.Forwarded: // known, and so not asked
				case match.IsLocal(s):
					matched.Locals++
				case s.Dynamic != nil:
					each.Sets += 2 // addresses and prefixes
				case s.Name != "" || s.Static.Size() > Inline:
					each.Sets++
				}
			}
		}
	}
	matched.Limits = limits(r)
	if len(r.Match) == 0 && each.Sets == 0 && len(r.Src)+len(r.Dst) == 1 { // there is nothing else
		each.Locals, matched.Locals = matched.Locals, 0
	}
	return each, matched
}

// limits counts the limits of a rule. A number of connections costs about what a rate costs.
func limits(r *ir.Rule) int {
	if r.Connections != nil {
		return len(r.Over) + 1
	}
	return len(r.Over)
}

// locals counts the tests of a rule for the host's own addresses.
func (pl *Plan) locals(r *ir.Rule) (n int) {
	for _, matches := range match.Sides(r) {
		for _, m := range matches {
			n += len(slices.DeleteFunc(slices.Clone(m.Sets), func(i int) bool { return !match.IsLocal(&pl.Program.Sets[i]) }))
		}
	}
	return n
}

// flow is the packets that a rule can match.
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
