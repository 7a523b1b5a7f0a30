// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Automatic is the owner of temporary rules that the daemon adds.
const Automatic = operate.Automatic

// Limits for the decisions about automatic rules.
const (
	observeFor   = 300 * time.Millisecond // a rule counts for at least this time before it may drop
	observeMost  = 10 * time.Second       // a rule that only counts is removed after this time
	leastMatched = 0.05                   // least share of the samples that a rule must match before it may drop
	leastLive    = 50                     // least samples for that share
	leastHarmed  = 3                      // samples of known senders from which on a rule does harm: fewer may be replies of a reflector that this host has asked
	leastKnown   = 20                     // least samples of known senders to measure harm; with fewer, only the baseline shows harm
	idleFor      = 5 * time.Second        // a rule without a match for this time may be replaced
	extendBefore = 30 * time.Second       // a rule that still matches the attack is extended this long before the rule's end
)

// Step is an action on an automatic rule, with the numbers behind the decision. A report shows steps to users who may see the report's packets. An
// event contains only the rule's name.
type Step struct {
	Time time.Time `json:"time"`
	Rule string    `json:"rule"`           // the rule's name
	Did  string    `json:"did"`            // the action: observes, drops, extended or removed
	Text string    `json:"text,omitempty"` // the rule
	Why  string    `json:"why"`
}

// The actions of steps.
const (
	Observes = "observes"
	Drops    = "drops"
	Extended = "extended"
	Removed  = "removed"
)

// automatic contains the rules that the daemon has added in this attack.
type automatic struct {
	rules    []*measured
	rejected map[string]bool // rules that must not be added again in this attack, by their tests
	number   int
	gone     []Step               // steps of removed rules
	inKernel []manifest.Temporary // the rules that drop, as last written to the kernel
}

// measured is an automatic rule and its measurement by live samples.
type measured struct {
	manifest.Temporary
	*suggest.Signature
	since   time.Time // start of the measurement in the present state: it observes, or it drops
	put     time.Time // when the kernel was last changed for this rule
	matched time.Time // when a sample last matched it

	replaces []string // names of rules that match the same packets, and that are removed when this rule drops
	live     tally    // counts of samples since `since`
	step     *Step    // a step that is not reported yet; nil when there is none
}

// tally counts samples.
type tally struct{ samples, matched, known, harmed int }

// add counts a sample.
func (t *tally) add(matches, known bool) {
	t.samples++
	if matches {
		t.matched++
	}
	if known {
		t.known++
		if matches {
			t.harmed++
		}
	}
}

// judgement is the decision about a rule.
type judgement int

const (
	stays judgement = iota
	promoted
	goes
)

// judge decides about a rule by its counts since it observes or drops. A rule that does harm is removed at once: no rule is better than a rule that
// drops clients' packets. A rule may drop only when enough live samples show that it matches the attack.
func (t *tally) judge(drops bool, lasted time.Duration, most float64) (judgement, string) {
	harm := suggest.ShareOf(t.harmed, t.known)
	switch {
	case t.harmed >= leastHarmed && harm.Low > most:
		return goes, fmt.Sprintf("it matches %d of %d samples from sources that were here before the attack", t.harmed, t.known)
	case drops || lasted < observeFor:
		return stays, ""
	case t.samples >= leastLive && float64(t.matched) >= leastMatched*float64(t.samples) && (t.known < leastKnown || harm.Part() <= most):
		return promoted, fmt.Sprintf("in %.0f s it matched %.1f%% of %d samples, and %d of %d from sources that were here before the attack",
			lasted.Seconds(), 100*float64(t.matched)/float64(t.samples), t.samples, t.harmed, t.known)
	case lasted >= observeMost:
		return goes, fmt.Sprintf("in %.0f s it matched %d of %d samples", lasted.Seconds(), t.matched, t.samples)
	}
	return stays, ""
}

func newAutomatic() *automatic { return &automatic{rejected: map[string]bool{}} }

// see counts a sample of the attack for each rule. The sample's own verdict does not matter.
func (a *automatic) see(s *seen) {
	if a == nil {
		return
	}
	for _, r := range a.rules {
		if s.Time.Before(r.since) {
			continue
		}
		if s.standing == replied { // a reply to this host passes before temporary rules are evaluated
			continue
		}
		matches := r.Has(&s.Sample)
		if matches {
			r.matched = s.Time
		}
		r.live.add(matches, s.standing >= known)
	}
}

// makeRoom reports whether another rule may be added. At the maximum, it first removes a rule that no longer matches, because the attack has changed.
func (a *automatic) makeRoom(now time.Time, bounds policy.Auto) bool {
	if len(a.rules) < bounds.Max {
		return true
	}
	idle := slices.IndexFunc(a.rules, func(r *measured) bool { return now.Sub(r.since) > idleFor && now.Sub(r.matched) > idleFor })
	if idle < 0 {
		return false
	}
	r := a.rules[idle]
	a.gone = append(a.gone, Step{now.UTC(), r.Name, Removed, r.Rule, "nothing matches it any more, and another one takes its place"})
	a.rules = slices.Delete(a.rules, idle, idle+1)
	return true
}

// conditions are the conditions for adding a suggested rule.
type conditions struct {
	bounds policy.Auto
	taken  map[string]bool                               // names of the existing rules
	unfit  func(*suggest.Signature) string               // returns why a rule must not be added, "" when it may
	bound  func(*suggest.Signature) string               // returns, as text, an upper limit of the harm to traffic that the baseline lacks; "" when unknown
	fits   func(*suggest.Signature) (suggest.Rule, bool) // measures a rule that was not found by a search, and reports whether the rule may be added
	proven func(*suggest.Signature) bool                 // reports whether the rule has dropped in an earlier attack
}

// propose adds suggested rules within the limits of the policy. It skips a rule unless the baseline proves, with enough confidence, that the rule
// does not match legitimate traffic.
func (a *automatic) propose(rules []suggest.Rule, c conditions, now time.Time) {
	for _, s := range rules {
		if a.rejected[s.Tests()] || s.Collateral == nil || s.Collateral.High > c.bounds.Collateral || s.Collateral.Cut > 0 {
			continue
		}
		same := func(r *measured) bool { return r.Same(s.Signature) }
		if slices.ContainsFunc(a.rules, same) || c.unfit(s.Signature) != "" {
			continue
		}
		var replaces []string
		if m, name := a.merged(s, c); name != "" {
			if slices.ContainsFunc(a.rules, func(r *measured) bool { return r.Same(m.Signature) || slices.Contains(r.replaces, name) }) {
				continue
			}
			s, replaces = m, []string{name}
		} else if !a.makeRoom(now, c.bounds) {
			continue
		}
		for a.number++; c.taken[fmt.Sprintf("%s-%d", Automatic, a.number)]; a.number++ {
			continue
		}
		harm := s.Collateral
		why := fmt.Sprintf("it matches %.1f%% of what passes, and %d of %d legitimate samples (at most %.3f%% of such traffic), of %d of %d senders (at most %.1f%%)",
			100*s.Coverage.Part(), harm.Packets, harm.Of, 100*harm.High, harm.Senders, harm.OfSenders, 100*suggest.ShareOf(harm.Senders, harm.OfSenders).High)
		if more := c.bound(s.Signature); more != "" {
			why += "; " + more
		}
		r := &measured{Signature: s.Signature, replaces: replaces, since: now, Temporary: manifest.Temporary{
			Name: fmt.Sprintf("%s-%d", Automatic, a.number), Owner: Automatic, Began: now.UTC(), Why: why,
		}}
		r.Last(now, c.bounds.For)
		if c.proven(s.Signature) {
			r.did(now, Drops, why)
		} else {
			r.did(now, Observes, why)
		}
		a.rules = append(a.rules, r)
	}
}

// drops reports whether the rule drops. Otherwise it observes.
func (r *measured) drops() bool { return !r.Value.Observe }

// did records a step. The step is reported when the change is in the kernel.
func (r *measured) did(now time.Time, did, why string) {
	if did != Extended {
		r.Set(r.As(r.Name, did == Observes))
	}
	r.step = &Step{now.UTC(), r.Name, did, r.Rule, why}
	r.Why, r.since, r.live, r.put = why, now, tally{}, now
}

// adopt takes over the rules that a previous daemon left in the kernel.
func (a *automatic) adopt(list []manifest.Temporary, now time.Time) {
	for _, t := range list {
		signature, observes, err := suggest.ReadSignature(t.Rule)
		if t.Owner != Automatic || err != nil {
			continue
		}
		a.number++
		t.Value = signature.As(t.Name, observes)
		a.inKernel = append(a.inKernel, t)
		a.rules = append(a.rules, &measured{Temporary: t, Signature: signature, since: now})
	}
}

// review judges the rules by their counts and by the open connections. there contains the names of the rules that were in the kernel at the time
// read.
func (a *automatic) review(now, read time.Time, bounds policy.Auto, there map[string]bool, open connections) {
	left := a.rules[:0]
	for _, r := range a.rules {
		r.Temporary = r.By(now)
		verdict, why := r.live.judge(r.drops(), now.Sub(r.since), bounds.Collateral)
		if cuts := open.cuts(r.Signature); cuts != "" {
			verdict, why = goes, cuts
		}
		if r.MatchesSYN() { // such a rule comes from an earlier version of Floodwall
			verdict, why = goes, "it matches SYNs"
		}
		switch {
		case !now.Before(r.Until):
			verdict, why = goes, "its time is over"
		case r.drops() && r.step == nil && r.put.Before(read) && !there[r.Name]:
			verdict, why = goes, "somebody has removed it"
			a.rejected[r.Tests()] = true
		case verdict == goes:
			a.rejected[r.Tests()] = true
		}
		switch {
		case verdict == goes:
			a.gone = append(a.gone, Step{now.UTC(), r.Name, Removed, r.Rule, why})
			continue
		case verdict == promoted:
			r.Last(now, bounds.For)
			r.did(now, Drops, why)
		case r.drops() && r.Until.Sub(now) < min(extendBefore, bounds.For/2) && r.live.samples >= leastLive && float64(r.live.matched) >= leastMatched*float64(r.live.samples):
			r.Last(now, bounds.For)
			r.did(now, Extended, fmt.Sprintf("it still matches %d of %d samples", r.live.matched, r.live.samples))
		}
		left = append(left, r)
	}
	a.rules = a.withoutReplaced(left, now)
}

// automate adds, promotes and removes rules within the limits of the policy. An action that fails, for example during a trial, is tried again in a
// later second.
func (w *Watcher) automate(ctx context.Context) {
	mine := w.mine()
	switch {
	case w.before.Trial != nil:
		return
	case w.now == nil || w.settings.Auto.Max == 0:
		if len(mine) > 0 {
			w.removeAutomatic(ctx, "no attack goes on")
		}
		return
	case w.now.auto == nil:
		w.now.auto = newAutomatic()
		w.now.auto.adopt(mine, w.at)
	}
	a, there, open := w.now.auto, map[string]bool{}, connections(sync.OnceValues(w.open))
	for _, t := range mine {
		there[t.Name] = true
	}
	a.review(w.at, w.read, w.settings.Auto, there, open)
	if s := w.now.report.Suggestion; s != nil && s != w.proposed && w.now.attacked() {
		w.proposed = s
		unfit := func(s *suggest.Signature) string {
			if why := cmp.Or(w.unfit(s), open.cuts(s)); why != "" {
				return why
			}
			if w.traffic.answeredShare(s, w.at) > fewAnswered {
				return "this host answers what it matches"
			}
			return ""
		}
		a.propose(s.Rules, conditions{w.settings.Auto, w.taken(), unfit, w.bound, w.fits(unfit), w.proven}, w.at)
	}
	w.carryOut(ctx, a)
}

// carryOut writes the decisions to the kernel in one transaction, and reports them. If the transaction fails, all decisions wait.
func (w *Watcher) carryOut(ctx context.Context, a *automatic) {
	steps := slices.Clone(a.gone)
	for _, r := range a.rules {
		if r.step != nil {
			steps = append(steps, *r.step)
		}
	}
	if len(steps) == 0 {
		return
	}
	if err := w.putAutomatic(ctx, a); err != nil {
		if !errors.Is(err, control.ErrOnTrial) && !errors.Is(err, datapath.ErrNotLoaded) {
			w.fail(fmt.Errorf("automatic rules: %w", err))
		}
		return
	}
	a.gone = nil
	put := w.clock().Add(w.delay)
	for i := range steps {
		if steps[i].Did == Drops {
			steps[i].Time = put.UTC()
		}
	}
	for _, r := range a.rules {
		if r.step != nil {
			r.put = put
		}
		if r.step != nil && r.step.Did == Drops {
			w.now.again() // other packets pass now, so rules are searched again soon
			w.now.searched = w.at
			w.remember(r.Signature)
			if t := &w.now.report.Times; t.Dropped == 0 {
				t.Dropped = r.put.Sub(w.now.report.Started).Seconds()
			}
			w.now.report.Advice = w.advice(nil)
		}
		r.step = nil
	}
	w.tellSteps(steps)
}

// taken returns the names of the existing rules.
func (w *Watcher) taken() map[string]bool {
	taken := map[string]bool{}
	for _, r := range w.before.Rules {
		taken[r.Name] = true
	}
	return taken
}

// mine returns the automatic rules that are in the kernel.
func (w *Watcher) mine() (list []manifest.Temporary) {
	if w.before == nil {
		return nil
	}
	for _, r := range w.before.Rules {
		if r.Temporary != nil && r.Temporary.Owner == Automatic {
			list = append(list, *r.Temporary)
		}
	}
	return manifest.InForce(list, w.at)
}

// putAutomatic writes the rules that drop to the kernel. Rules that only observe are not written: samples suffice to count their matches, and a rule
// that counts in the kernel takes as long to load as a rule that drops.
func (w *Watcher) putAutomatic(ctx context.Context, a *automatic) error {
	var list []manifest.Temporary
	for _, r := range a.rules {
		if r.drops() {
			list = append(list, r.Temporary)
		}
	}
	if slices.EqualFunc(list, a.inKernel, manifest.Temporary.Equal) {
		return nil
	}
	err := w.change(ctx, func([]manifest.Temporary) ([]manifest.Temporary, error) { return list, nil })
	if err == nil {
		a.inKernel = list
	}
	return err
}

// removeAutomatic removes all automatic rules.
func (w *Watcher) removeAutomatic(ctx context.Context, why string) {
	var gone []Step
	err := w.change(ctx, func(own []manifest.Temporary) ([]manifest.Temporary, error) {
		for _, t := range own {
			gone = append(gone, Step{w.clock().UTC(), t.Name, Removed, t.Rule, why})
		}
		return nil, nil
	})
	if err != nil {
		return // there is a trial or no policy runs: the next second tries again, and the kernel removes the rules at their end in any case
	}
	w.tellSteps(gone)
}

// mostSteps is the most steps of a report.
const mostSteps = 100

// tellSteps reports steps, and adds them to the report of the attack.
func (w *Watcher) tellSteps(steps []Step) {
	for _, s := range steps {
		turn := &Turn{State: s.Did, Rule: s.Rule, Why: s.Why}
		if w.now != nil {
			w.now.report.Steps = append(w.now.report.Steps, s)
			if list := w.now.report.Steps; len(list) > mostSteps { // keep the first and the latest steps, which matter most
				w.now.report.Steps = slices.Concat(list[:mostSteps/2], list[len(list)-mostSteps/2:])
			}
			turn.Attack = w.now.report.Summary()
		}
		text := fmt.Sprintf("automatic rule %s %s: %s", s.Rule, s.Did, s.Why)
		if s.Did != Removed {
			text += fmt.Sprintf("; `floodwall temporary remove %s` removes it at once", s.Rule)
		}
		w.tell(Event{Text: text, Data: turn})
	}
	if w.now != nil {
		w.keep()
	}
}
