// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
)

// Learning is the data that a Watcher has about quiet times, and the data that it still needs before it may add rules automatically.
type Learning struct {
	Updated  time.Time `json:"updated"`
	Seconds  int       `json:"seconds"`          // number of quiet seconds, from which the usual rate is learned
	OfSecond int       `json:"of_seconds"`       // number of quiet seconds that are needed before an attack can be detected
	Samples  int       `json:"samples"`          // number of legitimate samples, against which rules are tested
	Needed   int       `json:"needed,omitempty"` // samples that `auto` needs before it adds a rule; 0: the policy has no `auto`
	Lacks    string    `json:"lacks,omitempty"`  // why `auto` adds no rule now; "": it may add one
}

// Text returns the state as one line; "" when nothing is missing.
func (l *Learning) Text() string {
	switch {
	case l == nil:
		return ""
	case l.Lacks != "":
		return "`auto` adds no rule yet: " + l.Lacks
	case l.Seconds < l.OfSecond:
		return "no attack is seen yet: " + l.usualUnknown()
	}
	return ""
}

func (l *Learning) usualUnknown() string {
	return fmt.Sprintf("%d of %d seconds were seen that it takes to know what is usual", l.Seconds, l.OfSecond)
}

// samplesFor returns the number of legitimate samples without a match that proves, with 95% confidence, that a rule matches at most this share of
// legitimate packets.
func samplesFor(share float64) int {
	n := 1
	for suggest.ShareOf(0, n).High > share {
		n += 1 + n/1000
	}
	return n
}

// learning returns the present state.
func (w *Watcher) learning() *Learning {
	l := &Learning{Updated: w.at.UTC(), Seconds: min(len(w.traffic.total.rate.usual), leastSeconds), OfSecond: leastSeconds, Samples: len(w.learned.samples)}
	if w.settings.Baseline != "" {
		good, _ := w.good() // the code that needs the baseline reports its error
		l.Samples = len(good)
	}
	if w.settings.Auto.Max == 0 {
		return l
	}
	if w.needed.share != w.settings.Auto.Collateral {
		w.needed.share, w.needed.samples = w.settings.Auto.Collateral, samplesFor(w.settings.Auto.Collateral)
	}
	l.Needed = w.needed.samples
	l.Lacks = w.lacks(l)
	return l
}

// lacks returns why no rule may be added automatically now, "" when one may be added.
func (w *Watcher) lacks(l *Learning) string {
	before := w.before
	switch {
	case !w.replays() && before != nil && before.Target != plan.TargetXDP:
		return fmt.Sprintf("target %s takes no samples: apply the policy with target xdp", before.Target)
	case before != nil && before.Trial != nil:
		return "a policy is on trial: `floodwall confirm` keeps it"
	case l.Seconds < l.OfSecond:
		return l.usualUnknown()
	case l.Samples < l.Needed && w.settings.Baseline != "":
		return fmt.Sprintf("the baseline has %d packets, and it takes %d to know that a rule spares clients", l.Samples, l.Needed)
	case l.Samples < l.Needed:
		return fmt.Sprintf("%d of %d legitimate samples were learned that it takes to know that a rule spares clients; each counts after %v without an attack",
			l.Samples, l.Needed, learnDelay)
	case w.traffic.blind(w.at):
		return "it cannot be seen what this host answers: the kernel has no hook for what leaves, or this host forwards between devices of the policy"
	}
	return ""
}

// noteEvery is the least time between two writes of the state.
const noteEvery = 5 * time.Second

// noteLearning publishes the state of learning when its text has changed, and otherwise before the published state is stale.
func (w *Watcher) noteLearning() {
	l := w.learning()
	w.learns.Store(l)
	if since := w.at.Sub(w.noted); w.replays() || since < noteEvery || since < staleAfter/2 && l.Text() == w.notes {
		return
	}
	w.noted, w.notes = w.at, l.Text()
	if err := w.store.writeJSON(learningName, l); err != nil {
		w.fail(err)
	}
}

// Learning returns the state as of a second ago; nil when the policy has no detection.
func (w *Watcher) Learning() *Learning {
	if w == nil {
		return nil
	}
	return w.learns.Load()
}

// staleAfter is the greatest age of a valid state file.
const staleAfter = time.Minute

// Learning returns the state that a running daemon has written; nil when there is none.
func (s Store) Learning() (*Learning, error) {
	var l Learning
	err := s.readJSON(learningName, &l)
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(l.Updated) > staleAfter {
		return nil, nil
	}
	return &l, err
}

// explain reports, once in an attack, why no rule is added. It writes the reason into the report and sends an event.
func (w *Watcher) explain() {
	if w.now == nil || !w.now.attacked() || w.settings.Auto.Max == 0 {
		return
	}
	why := w.learning().Lacks
	if why == "" {
		why = w.now.refused
	}
	r := &w.now.report
	if why == "" || w.now.drops() {
		if w.now.drops() {
			r.NoRule = ""
		}
		return
	}
	first := r.NoRule == ""
	if r.NoRule = why; !first {
		return
	}
	w.tell(Event{Text: fmt.Sprintf("attack %s: no rule is added: %s", r.ID, why), Data: &Turn{State: NoRule, Attack: r.Summary(), Why: why}})
	w.keep()
}

// drops reports whether an automatic rule drops.
func (c *collecting) drops() bool {
	return c.auto != nil && slices.ContainsFunc(c.auto.rules, func(r *measured) bool { return r.drops() })
}
