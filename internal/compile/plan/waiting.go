package plan

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// This file divides what a rule drops, or the default does, behind a rule that runs later. At the earlier stage a packet that the later rule
// can match passes undecided: it waits. All others are dropped there. At the later stage the same rule drops those that waited. Packets that
// were dropped do not come there, so each is counted once. What passes is not divided: it comes to the later stage in any case.

// byDefault stands for the default where the index of a rule is asked for.
const byDefault = -1

// At reports whether anything is decided at a stage.
func (a Assignment) At(s Stage) bool { return a.Stage == s || a.Also == s && s != "" }

// Last is the last stage of an assignment.
func (a Assignment) Last() Stage {
	if a.Also != "" {
		return a.Also
	}
	return a.Stage
}

// Stages are the stages of an assignment, in words.
func (a Assignment) Stages() string {
	if a.Also != "" {
		return fmt.Sprintf("%s and %s", a.Stage, a.Also)
	}
	return string(a.Stage)
}

// divide has an assignment drop at a later stage, too, what waits for a rule there.
func (a *Assignment) divide(other *ir.Rule, later Stage) {
	if a.Also == "" || later.rank() > a.Also.rank() {
		a.Also = later
	}
	if !a.divided {
		a.Why += fmt.Sprintf("; what rule %q can match waits for %s", other.Name, later)
		a.divided = true
	}
}

// divisible reports whether a rule may drop at a stage what does not wait for another rule, and the rest at a later stage.
func (pl *Plan) divisible(r, other *ir.Rule, at, later Stage) bool {
	if pl.whole || r.Verdict != ir.Drop || match.Metered(r) || r.Sample > 0 || r.Conditional() {
		return false
	}
	if key, _ := pl.Unfit(r, later); key != "" {
		return false
	}
	cover, ok := pl.cover(other, at)
	return ok && !match.Covers(pl.Program.Sets, cover, r)
}

// defaultDivisible is divisible for the default, which matches all.
func (pl *Plan) defaultDivisible(other *ir.Rule, at Stage) bool {
	_, ok := pl.cover(other, at)
	return ok && !pl.undivided && pl.Program.Default == ir.Drop
}

// cover is a rule for all that another one can match, as far as a stage can tell: without what only later stages know, as the state of
// a connection. It is false when that can be any packet.
func (pl *Plan) cover(r *ir.Rule, at Stage) (*ir.Rule, bool) {
	known := func(m ir.Match) bool { return pl.unfitField(m, at) == "" }
	out := &ir.Rule{Name: r.Name, Kind: r.Kind, Line: r.Line, Col: r.Col, Verdict: ir.Pass}
	for _, m := range r.Match {
		if m.Field != packet.State && known(m) {
			out.Match = append(out.Match, m)
		}
	}
	addresses := func(list []ir.AddrMatch) []ir.AddrMatch {
		return slices.DeleteFunc(slices.Clone(list), func(m ir.AddrMatch) bool {
			return at == StageIngress && match.HasLocal(pl.Program.Sets, m)
		})
	}
	out.Src, out.Dst = addresses(r.Src), addresses(r.Dst)
	return out, len(out.Match)+len(out.Src)+len(out.Dst) > 0
}

// waiting are the rules, by their index, whose packets must wait at a stage before a rule there, or before the default.
func (pl *Plan) waiting(i int, s Stage) (rules []int) {
	place, before := pl.Default, len(pl.Rules)
	if i != byDefault {
		place, before = pl.Rules[i], i
	}
	if place.Stage != s || place.Also == "" {
		return nil
	}
	for j := range before {
		if !pl.lateAt(j, s) || pl.vacuous(&pl.Program.Rules[j]) {
			continue
		}
		if i == byDefault && pl.keepsDefault(&pl.Program.Rules[j]) || i != byDefault && pl.conflict(j, &pl.Program.Rules[i]) {
			rules = append(rules, j)
		}
	}
	return rules
}

// lateAt reports whether packets that rule j decides pass a stage undecided, before any rule behind it there. In front of a rule that is
// divided at the stage others let them wait.
func (pl *Plan) lateAt(j int, s Stage) bool {
	a := pl.Rules[j]
	return pl.after(a.Last(), s) && (a.Also == "" || a.Stage != s)
}

// conflict reports whether a rule must not be asked before rule j.
func (pl *Plan) conflict(j int, r *ir.Rule) bool {
	other := &pl.Program.Rules[j]
	return !commute(other, r) && match.Overlap(pl.Program.Sets, other, r)
}

// keepsDefault reports whether the default must not decide before a rule.
func (pl *Plan) keepsDefault(r *ir.Rule) bool {
	return !commute(r, &ir.Rule{Verdict: pl.Program.Default})
}

// waits appends the steps that let wait at a stage what a rule there, or the default, must not decide. Those in steps are there already.
func (pl *Plan) waits(steps []Step, i int, s Stage) []Step {
	waiting := pl.waiting(i, s)
	slices.Reverse(waiting) // a service stands behind what limits a part of its packets
	var more []Step
	for _, j := range waiting {
		cover, _ := pl.cover(&pl.Program.Rules[j], s)
		covers := func(step Step) bool { return step.Wait && match.Covers(pl.Program.Sets, pl.Of(step, s), cover) }
		if !slices.ContainsFunc(steps, covers) && !slices.ContainsFunc(more, covers) {
			more = append(more, Step{Rule: j, Again: true, Wait: true})
		}
	}
	slices.Reverse(more)
	return append(steps, more...)
}

// Of is the rule that a step at a stage asks packets for.
func (pl *Plan) Of(step Step, s Stage) *ir.Rule {
	r := &pl.Program.Rules[step.Rule]
	if step.Wait {
		r, _ = pl.cover(r, s)
	}
	return r
}

// StageFor is the stage at which a rule decides a packet.
func (pl *Plan) StageFor(rule int, pkt *packet.Packet, w ir.World) Stage {
	return pl.stageFor(rule, pl.Rules[rule], pkt, w)
}

// StageForDefault is the stage at which the default decides a packet.
func (pl *Plan) StageForDefault(pkt *packet.Packet, w ir.World) Stage {
	return pl.stageFor(byDefault, pl.Default, pkt, w)
}

func (pl *Plan) stageFor(i int, place Assignment, pkt *packet.Packet, w ir.World) Stage {
	for _, j := range pl.waiting(i, place.Stage) {
		cover, _ := pl.cover(&pl.Program.Rules[j], place.Stage)
		only := ir.Program{Sets: pl.Program.Sets, Rules: []ir.Rule{*cover}}
		if _, reason := only.Eval(pkt, w); reason.Kind == ir.ReasonRule {
			return place.Also
		}
	}
	return place.Stage
}

// Waits is the number that Only gives what lets packets wait.
const Waits = -1

// noteWaited remembers the rules whose packets wait before rule i.
func (pl *Plan) noteWaited(i int) {
	s := pl.Rules[i].Stage
	for _, j := range pl.waiting(i, s) {
		if !slices.Contains(pl.waited[s], j) {
			pl.waited[s] = append(pl.waited[s], j)
		}
	}
}

// skipped reports whether a rule must follow rule j, as a rule before it at a stage lets wait what both can match. What XDP takes for replies
// passes there, too.
func (pl *Plan) skipped(j int, r *ir.Rule, at Stage) bool {
	if r.Reply || !slices.Contains(pl.waited[at], j) {
		return false
	}
	cover, _ := pl.cover(&pl.Program.Rules[j], at)
	return match.Overlap(pl.Program.Sets, cover, r)
}

// first are the steps of the first stage, where nothing has been decided before.
func (pl *Plan) first() (steps []Step) {
	for i, place := range pl.Rules {
		if place.Stage == pl.First() {
			steps = append(pl.waits(steps, i, pl.First()), Step{Rule: i})
		}
	}
	return pl.waits(steps, byDefault, pl.First())
}

// LateNotes warn of a default that drops nothing in XDP, because of a rule that can match any packet and runs later. The factor is measured:
// floods at a closed UDP port, on a host with conntrack.
func LateNotes(pl *Plan) (notes []string) {
	p := pl.Program
	asked := pl.Target != TargetXDP || p.Default != ir.Drop || p.Placement.Stage() != ""
	if asked || !pl.after(pl.Default.Stage, pl.First()) {
		return nil
	}
	return []string{fmt.Sprintf("what no rule decides is dropped at %s and not at xdp, which takes a flood of it about 5 times the processor time: the default stands %s. "+
		"Give that rule a protocol, a port or addresses, and only what it can match waits for it", pl.Default.Stage, pl.Default.Why)}
}
