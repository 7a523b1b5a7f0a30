// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Times and limits of searches for rules.
const (
	searchSpan   = 1500 * time.Millisecond // packets that passed in this last time span are searched
	leastPassed  = 150                     // least samples for a search
	mostSearches = 5                       // most searches without `auto`
	searchEvery  = 30 * time.Second        // without `auto`, least time between two searches
	searchAgain  = 400 * time.Millisecond  // time between searches with `auto`; each search that finds nothing new doubles it
	searchLater  = 1200 * time.Millisecond // up to this time
	leastReturns = 0.05                    // least share of the passing packets that a rule of an earlier attack must match to be used again
	mostEarlier  = 32
)

// searching is the schedule of searches.
type searching struct {
	searches int
	searched time.Time
	wait     time.Duration
}

// again schedules the next search soon, because the passing packets or the rules have changed.
func (s *searching) again() { s.wait = searchAgain }

// due reports whether to search for rules now. With `auto`, the search is repeated for packets that the automatic rules let pass.
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
		if list[i].passed() {
			passes[list[i].place] += list[i].Stands / span.Seconds()
		}
	}
	all := 0.0
	for _, packets := range passes {
		all += packets
	}
	return slices.ContainsFunc(c.joined, func(j *joined) bool { return passes[j.load] > j.Bound || all > j.Bound && j.load.rate.bound > 0 })
}

// search searches for rules when a search is due.
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
		w.now.again() // the packets that pass from now on are new
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
	rules := w.returning(attack, good)
	if len(rules) == 0 {
		var err error
		if rules, err = w.found(attack, good, collateral); err != nil {
			w.fail(err)
		}
	}
	w.now.report.Advice = w.advice(rules)
	if len(rules) == 0 {
		return
	}
	w.suggest(rules, attack, good)
}

// found returns new rules. It leaves out rules that honest newcomers' packets could match.
func (w *Watcher) found(attack, good []suggest.Sample, collateral float64) ([]suggest.Rule, error) {
	w.now.refused = ""
	found, err := suggest.Find(suggest.Input{Program: &ir.Program{}, Taken: w.taken(), Attack: attack, Good: good, First: w.firsts, Collateral: collateral})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found.Rules, func(r suggest.Rule) bool {
		return w.refuses(r.Signature, attack)
	}), nil
}

// refuses reports whether a rule must not be added automatically, and records why.
func (w *Watcher) refuses(s *suggest.Signature, attack []suggest.Sample) bool {
	why := cmp.Or(w.unfit(s), opensBy(s, attack))
	if why != "" {
		w.now.refused = why
	}
	return why != ""
}

// returning returns rules of earlier attacks that match the passing packets and no legitimate ones.
func (w *Watcher) returning(attack, good []suggest.Sample) (list []suggest.Rule) {
	for _, g := range w.earlier {
		if w.unfit(g) != "" {
			continue
		}
		r := suggest.Measure(g, fmt.Sprintf("returning-%d", len(list)+1), attack, good)
		if r.Coverage.Part() >= leastReturns && (r.Collateral == nil || r.Collateral.Packets == 0) {
			list = append(list, r)
		}
	}
	return list
}

// proven reports whether a rule has dropped packets in an earlier attack.
func (w *Watcher) proven(g *suggest.Signature) bool { return slices.ContainsFunc(w.earlier, g.Same) }

// remember keeps an automatic rule for later attacks.
func (w *Watcher) remember(g *suggest.Signature) {
	w.earlier = slices.DeleteFunc(w.earlier, g.Same)
	w.earlier = slices.Insert(w.earlier, 0, g)
	w.earlier = w.earlier[:min(len(w.earlier), mostEarlier)]
}

// suggest writes rules into the report.
func (w *Watcher) suggest(rules []suggest.Rule, attack, good []suggest.Sample) {
	r := &w.now.report
	coverage, harm := suggest.Together(rules, attack, good)
	first := r.Suggestion == nil
	if !first && slices.EqualFunc(r.Suggestion.Rules, rules, func(a, b suggest.Rule) bool { return a.Same(b.Signature) }) {
		w.proposed = nil // a rule in the suggestion may be allowed now although it was refused before
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

// helps reports whether the found rules match half of the packets that pass to a load, or whether automatic rules already drop enough of the load.
func (w *Watcher) helps(rules []suggest.Rule, j *joined) bool {
	all, matched, passes := 0, 0, 0.0
	list := w.traffic.window.since(w.at.Add(-searchSpan))
	for i := range list {
		s := &list[i]
		if !s.passed() || s.place != j.load && j.load != w.traffic.total {
			continue
		}
		all++
		passes += s.Stands / w.traffic.window.covers(w.at, searchSpan).Seconds()
		if slices.ContainsFunc(rules, func(r suggest.Rule) bool { return r.Has(&s.Sample) }) {
			matched++
		}
	}
	return 2*matched >= all && len(rules) > 0 || w.now.drops() && (passes <= j.Bound || len(rules) == 0 && w.now.justDropped(w.at))
}

// justDropped reports whether a rule began to drop so recently that the window still has packets from before.
func (c *collecting) justDropped(now time.Time) bool {
	return slices.ContainsFunc(c.auto.rules, func(r *measured) bool { return r.drops() && now.Sub(r.put) < searchSpan })
}

// synPort returns the destination port of most SYNs to a load. ok is false unless most packets are SYNs and most SYNs go to this port.
func (w *Watcher) synPort(l *load) (most port, ok bool) {
	all, syns, by := 0, 0, map[port]int{}
	list := w.traffic.window.since(w.at.Add(-searchSpan))
	for i := range list {
		s := &list[i]
		if s.place != l && l != w.traffic.total {
			continue
		}
		if all++; s.Value[packet.Flags]&tcpFlags == syn && s.Value[packet.Flags] != packet.FlagsNone {
			syns++
			p := port(s.Value[packet.DPort])
			if by[p]++; by[p] > by[most] || by[p] == by[most] && p < most {
				most = p
			}
		}
	}
	return most, 2*syns > all && 2*by[most] > syns
}

// advice returns the remedies for each part of the attack that rules do not stop.
func (w *Watcher) advice(rules []suggest.Rule) (list []string) {
	for _, j := range w.now.joined {
		if j.Verdict == Attack && w.helps(rules, j) {
			continue
		}
		p, isPort := w.traffic.portOf(j.load)
		if syns, ok := w.synPort(j.load); ok && !isPort {
			p, isPort = syns, true
		}
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

// protects reports whether the policy protects the named service from UDP floods or SYN floods.
func (w *Watcher) protects(service string) bool {
	if w.before == nil {
		return false
	}
	udp := w.before.UDP != nil && slices.ContainsFunc(w.before.UDP.Services, func(s control.UDPServiceStatus) bool { return s.Service == service })
	return udp || slices.ContainsFunc(w.before.Rules, func(r control.RuleStatus) bool { return r.Beside && strings.HasPrefix(r.Name, service+":") })
}
