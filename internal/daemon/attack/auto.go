package attack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Automatic is the owner of temporary rules that the daemon adds by itself.
const Automatic = operate.Automatic

// What an automatic rule is measured by.
const (
	observeFor   = 300 * time.Millisecond // for which a rule only counts before it may drop,
	observeMost  = 10 * time.Second       // and after which it goes when nothing tells for it
	leastMatched = 0.05                   // share of the samples that a rule must match to drop, and
	leastLive    = 50                     // so many samples, without which nothing is known
	leastHarmed  = 3                      // samples of known senders, from which on a rule harms: fewer may be a reflector that was answered
	leastKnown   = 20                     // samples of known sources, without which only the baseline tells of the harm
	idleFor      = 5 * time.Second        // without a match, after which a rule makes place for another one
	extendBefore = 30 * time.Second       // its end a rule is extended that still matches the attack
)

// Step is something that was done with an automatic rule, with the figures that it was decided by. Those who may see the packets of a
// report see it in the report. An event has no more than the rule's name.
type Step struct {
	Time time.Time `json:"time"`
	Rule string    `json:"rule"`           // its name
	Did  string    `json:"did"`            // observes, drops, extended or removed
	Text string    `json:"text,omitempty"` // the rule
	Why  string    `json:"why"`
}

// The steps.
const (
	Observes = "observes"
	Drops    = "drops"
	Extended = "extended"
	Removed  = "removed"
)

// automatic is the rules that the daemon has added in this attack.
type automatic struct {
	rules    []*measured
	rejected map[string]bool // tests of rules that are not added again in this attack
	number   int
	gone     []Step               // of rules that are removed
	inKernel []manifest.Temporary // the rules that drop, as they were put last
}

// measured is an automatic rule and what live samples say of it.
type measured struct {
	manifest.Temporary
	*suggest.Signature
	dropsIt bool      // else it observes
	since   time.Time // it does so, as far as it is measured
	put     time.Time // when the kernel was last changed for it
	matched time.Time // when a sample matched it last

	live tally // since then
	step *Step // that waits to be told, nil when there is none
}

// tally counts samples.
type tally struct{ samples, matched, known, harmed int }

// add takes a sample.
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

// judgement is what becomes of a rule.
type judgement int

const (
	stays judgement = iota
	promoted
	goes
)

// judge decides about a rule by what was counted for it since it observes or drops. A rule that harms goes at once: better none than one
// that drops clients. It may drop only when enough live samples tell that it matches the attack.
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

// see takes a sample of the attack, whatever became of it.
func (a *automatic) see(s *seen) {
	if a == nil {
		return
	}
	for _, r := range a.rules {
		if s.at.Before(r.since) {
			continue
		}
		matches := r.Has(&s.Sample)
		if matches {
			r.matched = s.at
		}
		r.live.add(matches, s.standing >= known)
	}
}

// makeRoom removes a rule that nothing matches any more, where there are as many as may be: the attack has changed.
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

// tests is what a line asks for, without the name and what it does: by that a rule is known that was rejected.
func tests(line string) string {
	_, rest, _ := strings.Cut(line, ",")
	return strings.ReplaceAll(rest, ", observe: true", "")
}

// propose takes suggested rules up, as far as the bounds allow. A rule of which it is not sure, by the baseline, that it spares legitimate
// traffic is not taken. Nor is one that a crowd of newcomers could match, a connection that the kernel has, or what this host answers.
func (a *automatic) propose(rules []suggest.Rule, bounds policy.Auto, taken map[string]bool, now time.Time, open connections, answered func(*suggest.Signature) float64, proven func(text string) bool) error {
	for _, s := range rules {
		if a.rejected[tests(s.Text)] || s.Collateral == nil || s.Collateral.High > bounds.Collateral {
			continue
		}
		same := func(r *measured) bool { return tests(r.Rule) == tests(s.Text) }
		if slices.ContainsFunc(a.rules, same) {
			continue
		}
		signature, _, err := suggest.ReadSignature(s.Text)
		if err != nil {
			return err
		}
		if signature.Vague() || open.cuts(signature) != "" || answered(signature) > fewAnswered || !a.makeRoom(now, bounds) {
			continue
		}
		for a.number++; taken[fmt.Sprintf("%s-%d", Automatic, a.number)]; a.number++ {
			continue
		}
		why := fmt.Sprintf("it matches %.1f%% of what passes, and %d of %d legitimate samples (at most %.3f%% of such traffic), of %d of %d senders",
			100*s.Coverage.Part(), s.Collateral.Packets, s.Collateral.Of, 100*s.Collateral.High, s.Collateral.Senders, s.Collateral.OfSenders)
		r := &measured{Signature: signature, since: now, Temporary: manifest.Temporary{
			Name: fmt.Sprintf("%s-%d", Automatic, a.number), Owner: Automatic, Rule: observing(s.Text), Began: now.UTC(), Why: why,
		}}
		r.Last(now, bounds.For)
		if proven(s.Text) { // it has observed before
			r.Rule, r.dropsIt = dropping(s.Text), true
			r.did(now, Drops, why)
		} else {
			r.did(now, Observes, why)
		}
		a.rules = append(a.rules, r)
	}
	return nil
}

// dropping is a rule that drops.
func dropping(text string) string { return strings.ReplaceAll(text, ", observe: true", "") }

// observing is a rule that observes.
func observing(text string) string {
	if strings.Contains(text, ", observe: true") {
		return text
	}
	return strings.Replace(text, ", then: drop", ", observe: true, then: drop", 1)
}

// connections lists the TCP connections that the kernel has. A list of many takes a while, so it is asked for only when a rule needs it.
type connections func() ([]datapath.Connection, error)

// cuts says why a rule could drop segments of an open TCP connection, "" when it cannot.
func (open connections) cuts(s *suggest.Signature) string {
	if !s.TCP() {
		return ""
	}
	list, err := open()
	if err != nil {
		return fmt.Sprintf("nobody knows which TCP connections are open: %v", err)
	}
	if slices.ContainsFunc(list, func(c datapath.Connection) bool {
		return s.MayMatch(c.Client, c.Server) || s.MayMatch(c.Server, c.Client)
	}) {
		return "it can match segments of an open TCP connection"
	}
	return ""
}

// did notes a step, to be told once it is in the kernel.
func (r *measured) did(now time.Time, did, why string) {
	r.step = &Step{now.UTC(), r.Name, did, r.Rule, why}
	r.Why, r.since, r.live, r.put = why, now, tally{}, now
}

// adopt takes up the rules that a daemon before has left in the kernel.
func (a *automatic) adopt(list []manifest.Temporary, now time.Time) {
	for _, t := range list {
		signature, _, err := suggest.ReadSignature(t.Rule)
		if t.Owner != Automatic || err != nil {
			continue
		}
		a.number++
		a.inKernel = append(a.inKernel, t)
		a.rules = append(a.rules, &measured{Temporary: t, Signature: signature, dropsIt: !strings.Contains(t.Rule, ", observe: true"), since: now})
	}
}

// review judges the rules by what was counted, and by the connections that are open. there are those rules that the kernel had when that was
// read.
func (a *automatic) review(now, read time.Time, bounds policy.Auto, there map[string]bool, open connections) {
	left := a.rules[:0]
	for _, r := range a.rules {
		r.Temporary = r.By(now)
		verdict, why := r.live.judge(r.dropsIt, now.Sub(r.since), bounds.Collateral)
		if cuts := open.cuts(r.Signature); cuts != "" {
			verdict, why = goes, cuts
		}
		switch {
		case !now.Before(r.Until):
			verdict, why = goes, "its time is over"
		case r.dropsIt && r.step == nil && r.put.Before(read) && !there[r.Name]:
			verdict, why = goes, "somebody has removed it"
			a.rejected[tests(r.Rule)] = true
		case verdict == goes:
			a.rejected[tests(r.Rule)] = true
		}
		switch {
		case verdict == goes:
			a.gone = append(a.gone, Step{now.UTC(), r.Name, Removed, r.Rule, why})
			continue
		case verdict == promoted:
			r.Rule, r.dropsIt = dropping(r.Rule), true
			r.Last(now, bounds.For)
			r.did(now, Drops, why)
		case r.dropsIt && r.Until.Sub(now) < min(extendBefore, bounds.For/2) && r.live.samples >= leastLive && float64(r.live.matched) >= leastMatched*float64(r.live.samples):
			r.Last(now, bounds.For)
			r.did(now, Extended, fmt.Sprintf("it still matches %d of %d samples", r.live.matched, r.live.samples))
		}
		left = append(left, r)
	}
	a.rules = left
}

// automate adds, promotes and removes rules by itself, within the bounds of the policy, once a second. What cannot be done now, as during a
// trial, is done in a later second.
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
		answered := func(s *suggest.Signature) float64 { return w.traffic.answeredShare(s, w.at) }
		if err := a.propose(s.Rules, w.settings.Auto, w.taken(), w.at, open, answered, w.proven); err != nil {
			w.fail(err)
		}
	}
	w.carryOut(ctx, a)
}

// carryOut brings the kernel to what was decided, in one transaction, and tells of it. When that is not possible now, all of it waits.
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
	for _, r := range a.rules {
		if r.step != nil {
			r.put = w.clock()
		}
		if r.step != nil && r.step.Did == Drops {
			w.now.again() // what others pass
			w.now.searched = w.at
			w.remember(r.Rule)
			if t := &w.now.report.Times; t.Dropped == 0 {
				t.Dropped = r.put.Sub(w.now.report.Started).Seconds()
			}
		}
		r.step = nil
	}
	w.tellSteps(steps)
}

// taken are the names that rules have.
func (w *Watcher) taken() map[string]bool {
	taken := map[string]bool{}
	for _, r := range w.before.Rules {
		taken[r.Name] = true
	}
	return taken
}

// mine are the automatic rules that are in the kernel.
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

// putAutomatic has the kernel hold the rules that drop. One that observes is counted by samples alone: to have the kernel count it takes as long
// as to have it drop.
func (w *Watcher) putAutomatic(ctx context.Context, a *automatic) error {
	var list []manifest.Temporary
	for _, r := range a.rules {
		if r.dropsIt {
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
		return // a trial, or nothing runs: the next second tries again, and the kernel ends them in any case
	}
	w.tellSteps(gone)
}

// mostSteps is how many steps a report has.
const mostSteps = 100

// tellSteps tells what was done, and notes it in the report of the attack.
func (w *Watcher) tellSteps(steps []Step) {
	for _, s := range steps {
		turn := &Turn{State: s.Did, Rule: s.Rule, Why: s.Why}
		if w.now != nil {
			w.now.report.Steps = append(w.now.report.Steps, s)
			if list := w.now.report.Steps; len(list) > mostSteps { // those of the beginning tell most, and the latest
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

// Times between two lists of the TCP connections that the kernel has: a list of many takes long.
const (
	openEvery = time.Second
	listShare = 10 // of the time, one part in so many is for lists
)

// open lists the TCP connections that the kernel has, as they were a moment ago.
func (w *Watcher) open() ([]datapath.Connection, error) {
	if !w.at.Before(w.listed) {
		begin := time.Now()
		w.connections, w.listErr = w.list()
		w.listed = w.at.Add(max(openEvery, listShare*time.Since(begin)))
	}
	return w.connections, w.listErr
}
