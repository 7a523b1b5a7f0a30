// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// This file divides a rule or a default that drops packets between two stages. It does so if an earlier rule of the policy runs at a later stage. At
// the earlier stage, a packet that this late rule can match passes undecided: it waits. All other packets are dropped there. At the later stage, the
// same rule drops the packets that waited. Packets that were dropped before do not reach that stage, so each packet is counted once. A rule that
// passes packets is not divided, because its packets reach the later stage in any case.

// byDefault takes the place of a rule's index. It stands for the default.
const byDefault = -1

// At reports whether a rule with this assignment runs at a stage.
func (a Assignment) At(s Stage) bool { return a.Stage == s || a.Also == s && s != "" }

// Last returns the last stage of an assignment.
func (a Assignment) Last() Stage {
	if a.Also != "" {
		return a.Also
	}
	return a.Stage
}

// Stages returns the stages of an assignment as text.
func (a Assignment) Stages() string {
	if a.Also != "" {
		return fmt.Sprintf("%s and %s", a.Stage, a.Also)
	}
	return string(a.Stage)
}

// divide adds a later stage to an assignment. At that stage, the packets that waited for the rule other are dropped.
func (a *Assignment) divide(other *ir.Rule, later Stage) {
	if a.Also == "" || later.rank() > a.Also.rank() {
		a.Also = later
	}
	if !a.divided {
		a.Why += fmt.Sprintf("; what rule %q can match waits for %s", other.Name, later)
		a.divided = true
	}
}

// divisible reports whether a rule may be divided. It then drops most packets at one stage, and the packets that wait for another rule at a later
// stage.
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

// defaultDivisible does the same as divisible, for the default, which matches all packets.
func (pl *Plan) defaultDivisible(other *ir.Rule, at Stage) bool {
	_, ok := pl.cover(other, at)
	return ok && !pl.undivided && pl.Program.Default == ir.Drop
}

// cover returns a rule that matches all packets that rule r can match. It has only those tests of r that a stage can make. Tests that need a later
// stage, such as the state of a connection, are left out. If no test is left, the rule would match every packet, and cover returns false.
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

// waiting returns the indices of the rules whose packets must wait at a stage, because rule i or the default must not decide these packets there.
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

// lateAt reports whether rule j decides its packets only at a stage later than s. If rule j is divided at s, it returns false, because the steps
// before rule j already let its packets wait there.
func (pl *Plan) lateAt(j int, s Stage) bool {
	a := pl.Rules[j]
	return pl.after(a.Last(), s) && (a.Also == "" || a.Stage != s)
}

// conflict reports whether rule r must not decide packets that rule j, an earlier rule, can match.
func (pl *Plan) conflict(j int, r *ir.Rule) bool {
	other := &pl.Program.Rules[j]
	return !commute(other, r) && match.Overlap(pl.Program.Sets, other, r)
}

// keepsDefault reports whether the default must not decide packets that rule r can match.
func (pl *Plan) keepsDefault(r *ir.Rule) bool {
	return !commute(r, &ir.Rule{Verdict: pl.Program.Default})
}

// waits appends the steps that let packets wait at a stage because rule i or the default must not decide them there. It does not append steps that
// are already in the list.
func (pl *Plan) waits(steps []Step, i int, s Stage) []Step {
	waiting := pl.waiting(i, s)
	slices.Reverse(waiting) // the rule of a service comes after rules that limit a part of its packets
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

// Of returns the rule whose tests a step applies to packets.
func (pl *Plan) Of(step Step, s Stage) *ir.Rule {
	r := &pl.Program.Rules[step.Rule]
	if step.Wait {
		r, _ = pl.cover(r, s)
	}
	return r
}

// StageFor returns the stage at which a rule decides a packet.
func (pl *Plan) StageFor(rule int, pkt *packet.Packet, w ir.World) Stage {
	return pl.stageFor(rule, pl.Rules[rule], pkt, w)
}

// StageForDefault returns the stage at which the default decides a packet.
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

// Waits is the number that Only gives to a step that lets packets wait.
const Waits = -1

// noteWaited records the rules whose packets wait before rule i.
func (pl *Plan) noteWaited(i int) {
	s := pl.Rules[i].Stage
	for _, j := range pl.waiting(i, s) {
		if !slices.Contains(pl.waited[s], j) {
			pl.waited[s] = append(pl.waited[s], j)
		}
	}
}

// skipped reports whether rule r must move to the stage of the later rule j. It must if a divided rule before r lets packets wait at the stage at,
// and both r and j can match such packets. The rule for replies is exempt, because packets that XDP identifies as replies pass there in any case.
func (pl *Plan) skipped(j int, r *ir.Rule, at Stage) bool {
	if r.Reply || !slices.Contains(pl.waited[at], j) {
		return false
	}
	cover, _ := pl.cover(&pl.Program.Rules[j], at)
	return match.Overlap(pl.Program.Sets, cover, r)
}

// first returns the steps of the first stage. No packet has been decided before that stage.
func (pl *Plan) first() (steps []Step) {
	for i, place := range pl.Rules {
		if place.Stage == pl.First() {
			steps = append(pl.waits(steps, i, pl.First()), Step{Rule: i})
		}
	}
	return pl.waits(steps, byDefault, pl.First())
}

// LateNotes returns notes about a default that drops nothing in XDP, because a rule that can match any packet runs later. The factor in the note was
// measured with a flood to a closed UDP port, on a host with conntrack.
func LateNotes(pl *Plan) (notes []string) {
	p := pl.Program
	asked := pl.Target != TargetXDP || p.Default != ir.Drop || p.Placement.Stage() != ""
	if asked || !pl.after(pl.Default.Stage, pl.First()) {
		return nil
	}
	return []string{fmt.Sprintf("what no rule decides is dropped at %s and not at xdp, which takes a flood of it about 5 times the processor time: the default stands %s. "+
		"Give that rule a protocol, a port or addresses, and only what it can match waits for it", pl.Default.Stage, pl.Default.Why)}
}
