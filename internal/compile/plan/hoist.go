// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Plan says at which stage each rule of a program runs.
type Plan struct {
	Target  Target
	Program *ir.Program
	Rules   []Assignment // of each rule of Program
	Default Assignment

	From  []Stage // the earliest permitted stage of each rule, "" if there is none; nil: no rule has one
	Costs *Costs  // the predicted costs on which Place based the plan; nil: Place did not choose it

	free *freedom // for a plan of Place: the rules that may move

	whole, undivided bool            // whole: no rule may be divided between stages; undivided: the default may not be divided either
	waited           map[Stage][]int // for each stage: the rules whose packets must wait there for a later stage
	held             map[int]held    // the rules that run later than they could, because an earlier rule cannot be tested again at their earliest stage
}

// held is the earliest permitted stage of a rule that must run later than it could, and the reason.
type held struct {
	from Stage
	why  string
}

// Assignment is the stage of a rule, and the reason for it.
type Assignment struct {
	Stage Stage  `json:"stage"`
	Also  Stage  `json:"also,omitempty"` // a later stage, which decides the packets that had to wait at Stage for another rule
	Why   string `json:"why"`

	divided bool // Why mentions Also
}

// Hoist moves each rule to the earliest stage of a target
//   - that has all the data for its tests and can execute its verdict,
//   - that is not earlier than the stage which the rule's placement names, and
//   - that keeps the order of conflicting rules. Two rules conflict if they have different verdicts and some packet
//     matches both. A rule with limits, and a rule that only observes, conflicts with every rule that shares packets
//     with it: it must charge or count exactly the packets that the rules before it leave.
//
// A rule that drops may be divided. Then only the packets that a conflicting earlier rule can match wait for the later stage, if the earlier stage
// can recognize them (waiting.go). The default moves like a rule that matches all packets. So every packet gets the verdict of p.Eval. Its reason may
// be another rule with the same verdict. A stage may have to test again a rule that has passed packets at an earlier stage. If it cannot, the rules
// behind that rule move to a later stage that can. It is an error if a rule cannot run where earlier rules or its placement require it. All such
// errors are returned together, as StageErrors.
func Hoist(p *ir.Program, t Target) (*Plan, error) { return HoistFrom(p, t, nil) }

// HoistFrom does the same as Hoist, but from has an earliest stage for each rule. "" is no restriction. If no stage from there on can run a rule, the
// rule keeps its earliest possible stage.
func HoistFrom(p *ir.Program, t Target, from []Stage) (*Plan, error) {
	var err error
	for _, divided := range []Plan{{}, {whole: true}, {whole: true, undivided: true}} {
		pl := &divided
		pl.Target, pl.Program, pl.Rules, pl.From, pl.held = t, p, make([]Assignment, len(p.Rules)), from, map[int]held{}
		if err = pl.hoist(); err == nil {
			return pl, nil
		}
	}
	return nil, err // the error of a plan without divided rules
}

// hoist assigns the stages of all rules and of the default.
func (pl *Plan) hoist() error {
	var errs StageErrors
	pl.unguarded(&errs)
	pl.trackable(&errs)
	for {
		if pl.assignAll(&errs); errs != nil {
			return errs.once()
		}
		if errs = pl.repeatable(); errs == nil {
			return nil
		}
		if !pl.holdBack() {
			return errs.once()
		}
		errs = nil
	}
}

// assignAll assigns a stage to each rule and to the default. A rule without a possible stage is an error. Such a rule does not affect the stages of
// later rules.
func (pl *Plan) assignAll(errs *StageErrors) {
	late := lateRules{last: pl.First()}
	pl.waited = map[Stage][]int{}
	p := pl.Program
	for i := range p.Rules {
		place, err := pl.assign(i, late)
		if err != nil {
			errs.add(err)
			continue
		}
		pl.Rules[i] = place
		if place.Also != "" {
			pl.noteWaited(i)
		}
		if !pl.vacuous(&p.Rules[i]) {
			late.add(i, place.Last(), pl.First())
		}
	}
	pl.assignDefault(late)
}

// vacuous reports whether a rule matches no packet at the stage where it must run. This is so for the rule for later fragments of replies: it needs
// conntrack, which has reassembled the fragments by then.
func (pl *Plan) vacuous(r *ir.Rule) bool {
	return pl.Target != TargetXDP && r.Reply && onlyLater(r)
}

// onlyLater reports whether a rule matches only later fragments.
func onlyLater(r *ir.Rule) bool {
	return match.Values(r, packet.Fragment)[0].First == packet.FragmentLater
}

// holdBack searches for rules that have passed packets and that a later stage would have to test again, but cannot. It moves the rules of that stage
// that come after such a rule to the next stage that can run them. It reports whether it has moved any rule.
func (pl *Plan) holdBack() (any bool) {
	for _, s := range pl.Target.stages()[1:] {
		if !pl.Uses(s) {
			continue
		}
		here := pl.deciding(s)
		for i := range pl.Rules {
			r := &pl.Program.Rules[i]
			key, why := pl.unfitAgain(r, s)
			if key == "" {
				continue
			}
			if must, _ := pl.repeats(i, s, here); must {
				any = pl.holdBehind(i, s, here, why) || any
			}
		}
	}
	return any
}

// holdBehind moves rules from stage s to a later stage. here are the rules at s. It moves rules that must not decide the packets that rule i has
// passed. It also moves rules that keep the default at s, because the default must not decide these packets either. It reports whether it has moved
// any rule.
func (pl *Plan) holdBehind(i int, s Stage, here []int, why string) (any bool) {
	r, standard := &pl.Program.Rules[i], pl.Program.Default
	later := slices.Index(pl.Target.stages(), s) + 1
	if later == len(pl.Target.stages()) {
		return false
	}
	for _, j := range here {
		other := &pl.Program.Rules[j]
		keeps := pl.Default.At(s) && standard != ir.Pass && (other.Verdict != standard || match.Metered(other))
		behind := j > i && disturbs(other) && match.Overlap(pl.Program.Sets, r, other)
		if !pl.Rules[j].At(s) || other.Protect > 0 || !keeps && !behind {
			continue
		}
		if at, key, _ := pl.fitFrom(other, pl.Target.stages()[later]); key == "" {
			pl.held[j] = held{at, fmt.Sprintf("it must leave alone what rule %q passes, and at %s %s", r.Name, s, why)}
			any = true
		}
	}
	return any
}

// lateRules are the rules that run later than the first stage. It also has the latest of their stages.
type lateRules struct {
	rules []int
	last  Stage
}

func (l *lateRules) add(rule int, at, first Stage) {
	if at == first {
		return
	}
	l.rules = append(l.rules, rule)
	if at.rank() > l.last.rank() {
		l.last = at
	}
}

// assignDefault assigns the stage of the default.
func (pl *Plan) assignDefault(late lateRules) {
	p := pl.Program
	pl.Default = Assignment{Stage: pl.First(), Why: "no rule with another verdict runs later"}
	if s := pl.stageNamed(p.Placement.Stage()); s != "" && p.Default != ir.Pass {
		pl.Default = Assignment{Stage: s, Why: fmt.Sprintf("placement: %s", p.Placement)}
	}
	for !pl.settleDefault(late) {
	}
}

// settleDefault moves the default to the stage of a late rule that conflicts with it, or divides the default if possible. If it has moved the
// default, it returns false. The caller must then call it again, because other rules may be later than the new stage.
func (pl *Plan) settleDefault(late lateRules) bool {
	p := pl.Program
	for _, j := range late.rules {
		other, later := &p.Rules[j], pl.Rules[j].Last()
		if !pl.lateAt(j, pl.Default.Stage) {
			continue
		}
		switch {
		case pl.keepsDefault(other) && pl.defaultDivisible(other, pl.Default.Stage):
			pl.Default.divide(other, later)
		case pl.keepsDefault(other):
			pl.Default = Assignment{Stage: later, Why: behind(other)}
			return false
		case p.Default == ir.Pass:
			pl.Default = Assignment{Stage: later, Why: fmt.Sprintf("behind rule %q, which counts some of the same packets", other.Name)}
			return false
		}
	}
	return true
}

// assign returns the stage of rule i. late has the rules before it that run later than the first stage.
func (pl *Plan) assign(i int, late lateRules) (Assignment, *StageError) {
	r := &pl.Program.Rules[i]
	place, err := pl.begin(i)
	for moved := true; moved && err == nil; {
		place, moved, err = pl.follow(i, place, late)
	}
	if err != nil {
		return Assignment{}, err
	}
	return place, pl.protectable(r, place, nil)
}

// follow moves rule i to the stage of an earlier rule that conflicts with it and runs later. If possible, it divides rule i instead. moved reports
// whether it has moved the rule.
func (pl *Plan) follow(i int, place Assignment, late lateRules) (to Assignment, moved bool, err *StageError) {
	r := &pl.Program.Rules[i]
	for _, j := range late.rules {
		if !pl.after(late.last, place.Stage) {
			break
		}
		other, stage := &pl.Program.Rules[j], pl.Rules[j].Last()
		if !pl.lateAt(j, place.Stage) || !pl.conflict(j, r) && !pl.skipped(j, r, place.Stage) {
			continue
		}
		if pl.divisible(r, other, place.Stage, stage) {
			place.divide(other, stage)
			continue
		}
		at, key, why := pl.fitFrom(r, stage)
		if key != "" {
			return place, false, pl.refuse(r, key, fmt.Sprintf(
				"it must run at %s, behind rule %q (line %d), where %s", stage, other.Name, other.Line, why),
				fmt.Sprintf("move it before rule %q, or narrow one of the two so that no packet matches both", other.Name))
		}
		place = Assignment{Stage: at, Why: behind(other)}
		return place, true, pl.protectable(r, place, other)
	}
	return place, false, nil
}

// earliest returns the first stage that can run a rule, regardless of other rules.
func (pl *Plan) earliest(r *ir.Rule) (Assignment, *StageError) {
	why := "all it asks for is in the packet"
	if r.Asks != ir.NoFlood {
		why = "only XDP knows whom a service has answered"
	}
	var first, last, lastWhy string
	for _, s := range pl.Target.stages() {
		key, reason := pl.Unfit(r, s)
		if key == "" {
			return Assignment{Stage: s, Why: why}, nil
		}
		why = fmt.Sprintf("%s: %s", key, reason)
		first, last, lastWhy = cmp.Or(first, key), key, reason
	}
	remedy := fmt.Sprintf("no target has a place for it: do without %s, or without %s", first, last)
	if t, ok := pl.capable(r); ok {
		remedy = "use --target " + string(t)
	}
	return Assignment{}, pl.refuse(r, last, lastWhy, remedy)
}

// capable returns a target that has a stage for a rule. It returns false if there is none.
func (pl *Plan) capable(r *ir.Rule) (Target, bool) {
	for _, t := range []Target{TargetXDP, TargetNftables, TargetIptables} {
		other := Plan{Target: t, Program: pl.Program}
		if slices.ContainsFunc(t.stages(), func(s Stage) bool { key, _ := other.Unfit(r, s); return key == "" }) {
			return t, true
		}
	}
	return "", false
}

// fitFrom returns the first stage, from the stage from on, that can run a rule. If none can, it returns the key that the first of these stages cannot
// implement, and the reason.
func (pl *Plan) fitFrom(r *ir.Rule, from Stage) (at Stage, key, why string) {
	for _, s := range pl.Target.stages() {
		if pl.after(from, s) {
			continue
		}
		k, reason := pl.Unfit(r, s)
		if k == "" {
			return s, "", ""
		}
		if key == "" {
			key, why = k, reason
		}
	}
	return "", key, why
}

func behind(r *ir.Rule) string {
	if match.Metered(r) {
		return fmt.Sprintf("behind rule %q, which counts or limits some of the same packets", r.Name)
	}
	return fmt.Sprintf("behind rule %q, which has another verdict for some of the same packets", r.Name)
}

// First returns the earliest stage of the target.
func (pl *Plan) First() Stage { return pl.Target.stages()[0] }

// after reports whether packets reach stage a after stage b.
func (pl *Plan) after(a, b Stage) bool { return a.rank() > b.rank() }

// Step is a rule that a stage runs.
type Step struct {
	Rule  int  // its index in Program.Rules
	Again bool // the rule has already passed and counted its packets at an earlier stage; here it only exempts them from the following steps
	Wait  bool // the rule runs at a later stage; packets that it may match (Plan.Of) must wait for that stage
}

// At returns the steps of a stage, in order. First come rules that have passed packets at an earlier stage, if the rules or the default of this stage
// would decide these packets differently or count them twice. These packets have been decided already, so such rules can come before all others. The
// rule for replies is an exception and keeps its place. XDP and conntrack identify replies in different ways, so another rule may decide a packet
// that XDP did not identify as a reply. Then come the stage's own rules. A rule or default may be divided between this stage and a later one. The
// steps that let packets wait come directly before it.
func (pl *Plan) At(s Stage) []Step {
	if !pl.Uses(s) {
		return nil
	}
	var again, own []Step
	here := pl.deciding(s)
	for i, place := range pl.Rules {
		if place.At(s) {
			own = append(pl.waits(own, i, s), Step{Rule: i})
			continue
		}
		must, may := pl.repeats(i, s, here)
		switch {
		case !must && !may:
		case pl.Program.Rules[i].Reply:
			own = append(own, Step{Rule: i, Again: true})
		default:
			again = append(again, Step{Rule: i, Again: true})
		}
	}
	return append(again, pl.waits(own, byDefault, s)...)
}

// deciding returns the rules that run at a stage, and the rules for which the stage has SYNPROXY.
func (pl *Plan) deciding(s Stage) (rules []int) {
	for i, place := range pl.Rules {
		if place.At(s) || pl.ProxiedAt(i, s) {
			rules = append(rules, i)
		}
	}
	return rules
}

// repeats reports whether stage s must or may test rule i again, which has passed packets at an earlier stage. here are the rules at s. must means
// that these packets would otherwise get another verdict or be charged to a limit. may means that they would otherwise be counted twice.
func (pl *Plan) repeats(i int, s Stage, here []int) (must, may bool) {
	r := &pl.Program.Rules[i]
	if r.Verdict != ir.Pass || r.Observe || !pl.after(s, pl.Rules[i].Stage) {
		return false, false
	}
	if r.Asks != ir.NoFlood {
		return false, false // the rule of the same service, which follows, passes the same packets
	}
	if s == StageFilter && onlyLater(r) && pl.reassembled(here) {
		return false, false // the stage decides the reassembled datagram instead
	}
	if pl.ProxiedAt(i, s) {
		return true, true
	}
	met := pl.Default.At(s)
	if met && pl.Program.Default != ir.Pass {
		return true, true
	}
	for _, j := range here {
		other := &pl.Program.Rules[j]
		harmless := !disturbs(other) && !pl.ProxiedAt(j, s)
		if met && harmless || !match.Overlap(pl.Program.Sets, r, other) {
			continue
		}
		if met = true; !harmless && j > i {
			return true, true
		}
	}
	key, _ := pl.unfitAgain(r, s)
	return false, met && key == ""
}

// reassembled reports whether conntrack has reassembled the fragments of both families before the filter stage. here are the rules at that stage.
// Conntrack reassembles if a check or a rule needs it (nf_ct_netns_get() of the kernel's net/netfilter/nf_conntrack_proto.c). Without conntrack, IPv6
// reassembles fragments after the input hook, and a router does not reassemble them.
func (pl *Plan) reassembled(here []int) bool {
	return pl.CheckedAt(StageFilter) || slices.ContainsFunc(here, func(i int) bool {
		r := &pl.Program.Rules[i]
		asks := r.Connections != nil || pl.ProxiedAt(i, StageFilter) ||
			match.Tests(r, packet.State)
		families := match.Values(r, packet.Family)
		return asks && families[0].First == packet.FamilyIPv4 && families[len(families)-1].Last == packet.FamilyIPv6
	})
}

// disturbs reports whether a rule would give another verdict to packets that have passed already, or would count them.
func disturbs(r *ir.Rule) bool { return r.Verdict != ir.Pass || match.Metered(r) }

// Uses reports whether a stage has anything to decide.
func (pl *Plan) Uses(s Stage) bool {
	return pl.Default.At(s) && pl.Program.Default != ir.Pass || s == StageFilter && (pl.Proxies() || pl.CheckedAt(s)) ||
		slices.ContainsFunc(pl.Rules, func(p Assignment) bool { return p.At(s) })
}

// Later reports whether a plan with XDP also needs netfilter.
func (pl *Plan) Later() bool {
	return !pl.Program.Untracked.None() ||
		slices.ContainsFunc(pl.Target.stages()[1:], pl.Uses)
}

// repeatable returns an error for each rule that has passed packets and that a later stage would have to test again, but cannot.
func (pl *Plan) repeatable() (errs StageErrors) {
	for _, s := range pl.Target.stages()[1:] {
		if !pl.Uses(s) {
			continue
		}
		here := pl.deciding(s)
		for i := range pl.Rules {
			r := &pl.Program.Rules[i]
			must, _ := pl.repeats(i, s, here)
			if key, why := pl.unfitAgain(r, s); must && key != "" {
				errs.add(pl.refuse(r, key, fmt.Sprintf(
					"rules at %s come behind it, which must leave alone what it passes, and there %s", s, why),
					pl.behindRemedy(s)))
			}
		}
	}
	return errs
}

// behindRemedy returns the hint for rules at a stage that follow a rule which that stage cannot test again.
func (pl *Plan) behindRemedy(s Stage) string {
	rest := pl.deciding(s)
	rest = slices.DeleteFunc(rest, func(i int) bool { return pl.Program.Rules[i].Reply })
	if len(rest) == 0 && pl.Default.At(s) {
		return "add `replies: drop`, and rules for the answers that are to come back; conntrack tells replies at " + string(s)
	}
	return "move the rules that run at " + string(s) + ", for what they ask or as they reject, before it; or do without them"
}

// Only returns the program of the first stage alone: its rules, and rules that pass packets undecided to later stages. numbers has the index in
// Program.Rules of each of its rules. If the packets of a rule wait for a later stage, its number is Waits.
func (pl *Plan) Only() (p *ir.Program, numbers []int) {
	only := *pl.Program
	only.Rules = nil
	add := func(steps []Step) {
		for _, step := range steps {
			number := step.Rule
			if step.Wait {
				number = Waits
			}
			only.Rules, numbers = append(only.Rules, *pl.Of(step, pl.First())), append(numbers, number)
		}
	}
	add(pl.first())
	if pl.Default.Stage != pl.First() {
		only.Default = ir.Pass
	}
	return &only, numbers
}

// Joined reports whether a rule is at the end of the chain to which the previous rule jumps. It then needs no tests of its own.
func (pl *Plan) Joined(i int) bool {
	return match.Repeats(pl.Program.Rules, i) && pl.Rules[i-1].Stage == pl.Rules[i].Stage
}

// commute reports whether two rules may be swapped although some packets match both. A rule that drops packets above a limit of connections may be
// swapped with another rule that drops. Its limit counts only connections that conntrack has confirmed, and those of dropped packets are never
// confirmed.
func commute(a, b *ir.Rule) bool {
	metered := func(r *ir.Rule) bool {
		return match.Metered(r) && (r.Connections == nil || len(r.Over) > 0 || r.Observe || r.Verdict != ir.Drop)
	}
	return a.Verdict == b.Verdict && a.Protect == b.Protect && !metered(a) && !metered(b)
}
