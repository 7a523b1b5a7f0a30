package attack

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Times and bounds of searches for rules.
const (
	searchSpan   = 1500 * time.Millisecond // of what passed is searched
	leastPassed  = 150                     // samples in it for a search
	mostSearches = 5                       // where the daemon adds no rules by itself,
	searchEvery  = 30 * time.Second        // at least between two of these
	searchAgain  = 400 * time.Millisecond  // and between the others; each that finds nothing new doubles it,
	searchLater  = 1200 * time.Millisecond // up to this
	leastReturns = 0.05                    // share of what passes that a rule of before must match to come back
	mostEarlier  = 32
)

// searching is when rules are searched.
type searching struct {
	searches int
	searched time.Time
	wait     time.Duration
}

// again has the next search come soon: something has changed.
func (s *searching) again() { s.wait = searchAgain }

// due reports whether rules are to be searched now. Where the daemon adds rules by itself, it searches again in what these let pass.
func (c *collecting) due(now time.Time, auto bool) bool {
	if auto {
		return now.Sub(c.searched) >= c.wait
	}
	return c.report.Suggestion == nil && c.searches < mostSearches && now.Sub(c.searched) >= searchEvery
}

// passesTooMuch reports whether any part of the attack passes more than its bound.
func (c *collecting) passesTooMuch(list []seen, span time.Duration) bool {
	passes := map[*load]float64{}
	for i := range list {
		if list[i].passed {
			passes[list[i].place] += list[i].packets / span.Seconds()
		}
	}
	all := 0.0
	for _, packets := range passes {
		all += packets
	}
	return slices.ContainsFunc(c.joined, func(j *joined) bool { return passes[j.load] > j.Bound || all > j.Bound && j.load.rate.bound > 0 })
}

// search searches rules when it is time to.
func (w *Watcher) search() {
	auto := w.settings.Auto.Max > 0
	if !w.now.due(w.at, auto) {
		return
	}
	attack := w.traffic.window.passing(w.at, searchSpan)
	if len(attack) < leastPassed {
		return
	}
	if len(w.now.joined) > 0 && !w.now.passesTooMuch(w.traffic.window.since(w.at.Add(-searchSpan)), w.traffic.window.covers(w.at, searchSpan)) {
		w.now.again() // what passes next is new
		return
	}
	quiet, err := w.good()
	if err != nil {
		w.fail(err)
	}
	var good []suggest.Sample
	if quiet != nil {
		good = w.traffic.good(quiet)
	}
	collateral := Collateral
	if auto {
		collateral = min(collateral, w.settings.Auto.Collateral)
	}
	w.now.searches++
	w.now.searched = w.at
	w.now.wait = min(searchLater, 2*max(searchAgain, w.now.wait))
	rules, err := w.returning(attack, good)
	if err == nil && len(rules) == 0 {
		rules, err = w.found(attack, good, collateral)
	}
	if err != nil {
		w.fail(err)
	}
	w.now.report.Advice = w.advice(len(rules) > 0)
	if len(rules) == 0 {
		return
	}
	w.suggest(rules, attack, good)
}

// found are new rules. One that honest newcomers could match is none.
func (w *Watcher) found(attack, good []suggest.Sample, collateral float64) ([]suggest.Rule, error) {
	found, err := suggest.Find(suggest.Input{Program: &ir.Program{}, Taken: w.taken(), Attack: attack, Good: good, Collateral: collateral})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found.Rules, func(r suggest.Rule) bool {
		s, _, err := suggest.ReadSignature(r.Text)
		return err != nil || s.Vague()
	}), nil
}

// returning are rules of attacks before that match what passes now, and spare what is good.
func (w *Watcher) returning(attack, good []suggest.Sample) (list []suggest.Rule, err error) {
	for _, text := range w.earlier {
		g, _, err := suggest.ReadSignature(text)
		if err != nil {
			return nil, err
		}
		r := suggest.Measure(g, fmt.Sprintf("returning-%d", len(list)+1), attack, good)
		if r.Coverage.Part() >= leastReturns && (r.Collateral == nil || r.Collateral.Packets == 0) {
			list = append(list, r)
		}
	}
	return list, nil
}

// proven reports whether a rule has dropped before.
func (w *Watcher) proven(text string) bool {
	return slices.ContainsFunc(w.earlier, func(t string) bool { return tests(t) == tests(text) })
}

// remember has an automatic rule be known for later attacks.
func (w *Watcher) remember(text string) {
	w.earlier = slices.DeleteFunc(w.earlier, func(t string) bool { return tests(t) == tests(text) })
	w.earlier = slices.Insert(w.earlier, 0, text)
	w.earlier = w.earlier[:min(len(w.earlier), mostEarlier)]
}

// suggest has the report show rules.
func (w *Watcher) suggest(rules []suggest.Rule, attack, good []suggest.Sample) {
	r := &w.now.report
	coverage, harm := suggest.Together(rules, attack, good)
	first := r.Suggestion == nil
	if !first && slices.EqualFunc(r.Suggestion.Rules, rules, func(a, b suggest.Rule) bool { return tests(a.Text) == tests(b.Text) }) {
		w.proposed = nil // what spoke against one of them may be over
		return
	}
	w.now.again()
	r.Suggestion = &Suggestion{Found: w.at, Expires: w.at.Add(suggestedFor), Baseline: len(good), Rules: rules, Coverage: coverage, Collateral: harm}
	if first {
		r.Times.Suggested = w.at.Sub(r.Started).Seconds()
		w.say(Suggested, fmt.Sprintf("attack %s: suggested rules: %d, until %s; `floodwall attacks %s` shows them",
			r.ID, len(r.Suggestion.Rules), r.Suggestion.Expires.Format(time.TimeOnly), r.ID))
	}
	w.keep()
}

// advice is what helps where rules do not, for each part of the attack.
func (w *Watcher) advice(found bool) (list []string) {
	for _, j := range w.now.joined {
		if j.Verdict == Attack && found {
			continue
		}
		p, isPort := w.traffic.portOf(j.load)
		switch {
		case j.Verdict == Crowd || j.Verdict == Scan:
			list = append(list, fmt.Sprintf("%s: a %s, which no rule is added against", j.At, j.Verdict))
		case !isPort:
			list = append(list, fmt.Sprintf("%s: no safe rule; limit by prefix (`limit:`), or have the routers upstream drop it (`upstream:`)", j.At))
		case w.protects(j.At):
			list = append(list, fmt.Sprintf("%s: no safe rule; its protection keeps its clients served", j.At))
		case p >= packet.PortUDP:
			list = append(list, fmt.Sprintf("%s: no safe rule; give %s `udp: protect` in services, or a limit by prefix", j.At, p))
		default:
			list = append(list, fmt.Sprintf("%s: no safe rule; give %s `syn: protect` in services, or a limit by prefix", j.At, p))
		}
	}
	return list
}

// protects reports whether a service of a name is protected, from floods of UDP or of SYNs.
func (w *Watcher) protects(service string) bool {
	if w.before == nil {
		return false
	}
	udp := w.before.UDP != nil && slices.ContainsFunc(w.before.UDP.Services, func(s control.UDPServiceStatus) bool { return s.Service == service })
	return udp || slices.ContainsFunc(w.before.Rules, func(r control.RuleStatus) bool { return r.Beside && strings.HasPrefix(r.Name, service+":") })
}
