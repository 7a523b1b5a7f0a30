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

	From  []Stage // before which each rule was not to run, "" where nothing was said; nil: of none
	Costs *Costs  // by which it was chosen; nil: by none

	free *freedom // of a plan of Place: how far rules may be moved

	whole, undivided bool            // no rule, or not even the default, is divided between stages
	waited           map[Stage][]int // the rules whose packets wait at a stage before another rule
	held             map[int]held    // rules that run later, as a rule before them cannot be asked again where they could run
}

// held is the stage before which a rule does not run, and why.
type held struct {
	from Stage
	why  string
}

// Assignment is the stage of a rule, and why it is that one.
type Assignment struct {
	Stage Stage  `json:"stage"`
	Also  Stage  `json:"also,omitempty"` // a later stage, which decides what waited at Stage for another rule
	Why   string `json:"why"`

	divided bool // Why says so
}

// Hoist moves each rule to the earliest stage of a target
//   - at which all it asks for is known and its verdict can be given,
//   - that is not before the one which the rule's placement names, and
//   - where no rule before it with another verdict that some packet could match as well stays behind. Rules with limits,
//     and those that only observe, are passed by none and pass none that share packets with them, whatever the verdict:
//     what they are charged with or count is what the rules before them leave.
//
// Of a rule that drops only the packets that such a rule before it can match stay behind, where the earlier stage can tell them
// (waiting.go). The default moves like a rule that matches all. So every packet gets the verdict of p.Eval; which of several rules
// with that verdict is its reason may differ. A rule that would have to leave alone, at its stage, what an earlier rule passes
// runs at a later stage when only that one can ask the earlier rule. A rule that cannot run where the rules before it force it, or
// where its placement says, is an error. All such rules are reported, as StageErrors.
func Hoist(p *ir.Program, t Target) (*Plan, error) { return HoistFrom(p, t, nil) }

// HoistFrom is Hoist with a stage for each rule before which it does not run, "" where there is none. A rule that none of
// the stages from there on can serve runs at the earliest one.
func HoistFrom(p *ir.Program, t Target, from []Stage) (*Plan, error) {
	var err error
	for _, divided := range []Plan{{}, {whole: true}, {whole: true, undivided: true}} {
		pl := &divided
		pl.Target, pl.Program, pl.Rules, pl.From, pl.held = t, p, make([]Assignment, len(p.Rules)), from, map[int]held{}
		if err = pl.hoist(); err == nil {
			return pl, nil
		}
	}
	return nil, err // what stands in the way of a plan in which nothing is divided
}

// hoist finds the stages.
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

// assignAll finds the stages of all rules and of the default. A rule that has none is an error, and keeps no other rule back.
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

// vacuous reports whether a rule matches nothing at the stage where it must run: conntrack, which tells replies, has put their fragments together.
func (pl *Plan) vacuous(r *ir.Rule) bool {
	return pl.Target != TargetXDP && r.Reply && onlyLater(r)
}

// onlyLater reports whether a rule is about later fragments alone.
func onlyLater(r *ir.Rule) bool {
	return match.Values(r, packet.Fragment)[0].First == packet.FragmentLater
}

// holdBack finds the rules that a stage cannot run, as they come behind a rule that has passed packets and cannot be asked there, and
// holds them back to the next stage that can serve them. It reports whether it found any that have one.
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

// holdBehind holds back the rules of a stage, of which here are all, that must leave alone what rule i passes, or that keep the
// default there, which must.
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

// lateRules are rules behind the first stage, and the last stage that any of them is at.
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

// assignDefault finds the stage of the default.
func (pl *Plan) assignDefault(late lateRules) {
	p := pl.Program
	pl.Default = Assignment{Stage: pl.First(), Why: "no rule with another verdict runs later"}
	if s := pl.stageNamed(p.Placement.Stage()); s != "" && p.Default != ir.Pass {
		pl.Default = Assignment{Stage: s, Why: fmt.Sprintf("placement: %s", p.Placement)}
	}
	for !pl.settleDefault(late) {
	}
}

// settleDefault has the default follow a rule that keeps it from its stage, and divides it for others. It reports whether none did the former:
// from another stage on, other rules may be later.
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

// assign finds the stage of rule i; late are of the rules before it.
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

// follow has rule i follow a rule that keeps it from its place, and divides it for others. moved reports whether it did the former.
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

// earliest is the first stage that can decide a rule by itself.
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

// capable is a target that has a stage for a rule, if there is one.
func (pl *Plan) capable(r *ir.Rule) (Target, bool) {
	for _, t := range []Target{TargetXDP, TargetNftables, TargetIptables} {
		other := Plan{Target: t, Program: pl.Program}
		if slices.ContainsFunc(t.stages(), func(s Stage) bool { key, _ := other.Unfit(r, s); return key == "" }) {
			return t, true
		}
	}
	return "", false
}

// fitFrom is the first stage from one on that can serve a rule; or a key that none can, and why the first cannot.
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

// First is the earliest stage of the target.
func (pl *Plan) First() Stage { return pl.Target.stages()[0] }

// after reports whether a packet meets stage a after b.
func (pl *Plan) after(a, b Stage) bool { return a.rank() > b.rank() }

// Step is a rule that a stage runs.
type Step struct {
	Rule  int  // its index in Program.Rules
	Again bool // it is counted at another stage, and only keeps its packets from what follows here
	Wait  bool // it runs at a later stage, and what it may match (Plan.Of) waits for that
}

// At lists what a stage runs, in order: first the rules that passed packets earlier and that match packets which a rule
// (or the default) of this stage would decide otherwise, or count a second time; then its own rules. A packet that one of
// the former matches has been decided, so they can stand before all others; but for replies, which XDP and conntrack tell
// otherwise: of a packet that XDP did not take for one another rule may decide. Before a rule, or the default, that drops at this
// stage and at a later one, what must wait for a rule there.
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

// deciding are the rules that a stage decides by, or has SYNPROXY for.
func (pl *Plan) deciding(s Stage) (rules []int) {
	for i, place := range pl.Rules {
		if place.At(s) || pl.ProxiedAt(i, s) {
			rules = append(rules, i)
		}
	}
	return rules
}

// repeats reports whether a stage, by whose rules here is decided, must pass again what rule i has passed earlier, lest it
// gets another verdict or is charged to a limit, and whether it may, lest it is counted twice.
func (pl *Plan) repeats(i int, s Stage, here []int) (must, may bool) {
	r := &pl.Program.Rules[i]
	if r.Verdict != ir.Pass || r.Observe || !pl.after(s, pl.Rules[i].Stage) {
		return false, false
	}
	if r.Asks != ir.NoFlood {
		return false, false // the rule of its service, behind it, passes all that it passes
	}
	if s == StageFilter && onlyLater(r) && pl.reassembled(here) {
		return false, false // the whole is decided
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

// reassembled reports whether conntrack has put fragments of both families together before the filter stage, by whose rules here is decided.
// It does where a check or a rule asks it (nf_ct_netns_get() of the kernel's net/netfilter/nf_conntrack_proto.c). Else IPv6 reassembles behind the hook for
// input, and a router does not reassemble.
func (pl *Plan) reassembled(here []int) bool {
	return pl.CheckedAt(StageFilter) || slices.ContainsFunc(here, func(i int) bool {
		r := &pl.Program.Rules[i]
		asks := r.Connections != nil || pl.ProxiedAt(i, StageFilter) ||
			slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.State })
		families := match.Values(r, packet.Family)
		return asks && families[0].First == packet.FamilyIPv4 && families[len(families)-1].Last == packet.FamilyIPv6
	})
}

// disturbs reports whether a rule gives packets that were passed another verdict, or counts them.
func disturbs(r *ir.Rule) bool { return r.Verdict != ir.Pass || match.Metered(r) }

// Uses reports whether a stage has anything to decide.
func (pl *Plan) Uses(s Stage) bool {
	return pl.Default.At(s) && pl.Program.Default != ir.Pass || s == StageFilter && (pl.Proxies() || pl.CheckedAt(s)) ||
		slices.ContainsFunc(pl.Rules, func(p Assignment) bool { return p.At(s) })
}

// Later reports whether netfilter has anything to do beside XDP.
func (pl *Plan) Later() bool {
	return !pl.Program.Untracked.None() ||
		slices.ContainsFunc(pl.Target.stages()[1:], pl.Uses)
}

// repeatable returns an error for each rule that passed packets and would have to be tested again at a stage where it cannot.
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

// behindRemedy is the remedy where rules at a stage come behind one that must not be asked there.
func (pl *Plan) behindRemedy(s Stage) string {
	rest := pl.deciding(s)
	rest = slices.DeleteFunc(rest, func(i int) bool { return pl.Program.Rules[i].Reply })
	if len(rest) == 0 && pl.Default.At(s) {
		return "add `replies: drop`, and rules for the answers that are to come back; conntrack tells replies at " + string(s)
	}
	return "move the rules that run at " + string(s) + ", for what they ask or as they reject, before it; or do without them"
}

// Only is the program of the first stage alone: its rules, and what lets later stages decide where they do. numbers has the
// index in Program.Rules of each of its rules, and Waits for one whose packets wait for a later stage.
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

// Joined reports whether a rule stands at the end of the chain that the one before it calls, which spares its tests.
func (pl *Plan) Joined(i int) bool {
	return match.Repeats(pl.Program.Rules, i) && pl.Rules[i-1].Stage == pl.Rules[i].Stage
}

// commute reports whether two rules may change places, though some packets match both. Which packets come to a limit of connections does not
// matter to it: it counts those that conntrack has confirmed, and what is dropped is not.
func commute(a, b *ir.Rule) bool {
	metered := func(r *ir.Rule) bool {
		return match.Metered(r) && (r.Connections == nil || len(r.Over) > 0 || r.Observe || r.Verdict != ir.Drop)
	}
	return a.Verdict == b.Verdict && a.Protect == b.Protect && !metered(a) && !metered(b)
}
