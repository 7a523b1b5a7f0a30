// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/policy"
)

// This file keeps the rates of quiet times for the next start of the daemon.

// usual is the stored data of quiet times, which a daemon reads at its start.
type usual struct {
	Seconds  []float64           `json:"seconds"`            // packets of each quiet second
	Hours    []mean              `json:"hours,omitempty"`    // packets a second, by the hour of the week, from Sunday on
	Other    usualFor            `json:"other"`              // packets to no known service
	Services map[string]usualFor `json:"services,omitempty"` // by the port, a value of packet.DPort
	Rules    []string            `json:"rules,omitempty"`    // automatic rules of earlier attacks, the latest first
}

// usualFor is the usual traffic of a service.
type usualFor struct {
	Name     string    `json:"name"`
	Seconds  []float64 `json:"seconds"`
	Hours    []mean    `json:"hours"`
	In       float64   `json:"in"`
	Out      float64   `json:"out"`
	Familiar float64   `json:"familiar"`
	Each     float64   `json:"each,omitempty"` // packets a second of each sender
}

func rounded(list []float64) []float64 {
	out := make([]float64, len(list))
	for i, v := range list {
		out[i] = math.Round(10*v) / 10
	}
	return out
}

// usualOf returns the usual traffic of a load.
func usualOf(l *load) usualFor {
	return usualFor{l.name, rounded(l.rate.usual), l.hours[:], l.usualIn, l.usualOut, l.usualOld, l.usualEach}
}

// keepUsual writes the rates of quiet times.
func (w *Watcher) keepUsual() {
	w.kept = w.at
	total := w.traffic.total
	u := usual{Seconds: total.rate.usual, Hours: total.hours[:], Other: usualOf(w.traffic.other), Services: map[string]usualFor{}, Rules: linesOf(w.earlier)}
	for p, l := range w.traffic.services {
		u.Services[strconv.Itoa(int(p))] = usualOf(l)
	}
	err := w.store.writeJSON(usualName, u)
	if len(w.learned.samples) >= leastBaseline {
		err = errors.Join(err, w.store.writePackets(baselineName, w.learned.samples))
	}
	if len(w.openings.samples) > 0 {
		err = errors.Join(err, w.store.writePackets(openingsName, w.openings.samples))
	}
	if err != nil {
		w.fail(err)
	}
}

// take sets the learned rates of a load. It skips impossible values.
func (l *load) take(seconds []float64, hours []mean) {
	seconds = slices.DeleteFunc(seconds, func(v float64) bool { return !isRate(v) })
	l.rate.usual = seconds[max(0, len(seconds)-usualSeconds):]
	if len(hours) != hoursOfWeek {
		return
	}
	for i, m := range hours {
		if isRate(m.Mean) && m.Seconds >= 0 && m.Seconds <= hourMemory {
			l.hours[i] = m
		}
	}
}

// isRate reports whether a number is a possible rate in packets a second.
func isRate(v float64) bool { return v >= 0 && v < 1e12 }

// know sets the usual traffic of a load.
func (l *load) know(u *usualFor) {
	l.take(u.Seconds, u.Hours)
	if isRate(u.In) && isRate(u.Out) && isRate(u.Familiar) {
		l.usualIn, l.usualOut, l.usualOld = u.In, u.Out, u.Familiar
		if isRate(u.Each) {
			l.usualEach = u.Each
		}
	}
}

// linesOf returns the text of each rule as a line.
func linesOf(rules []*suggest.Signature) (lines []string) {
	for i, g := range rules {
		lines = append(lines, g.As(fmt.Sprintf("earlier-%d", i+1), false).Line())
	}
	return lines
}

// readable returns the parsed rules. It skips a rule that this version cannot parse or would not add.
func readable(rules []string) (list []*suggest.Signature) {
	for _, text := range rules {
		if s, _, err := suggest.ReadSignature(text); err == nil && !s.Vague() && !s.MatchesSYN() && len(list) < mostEarlier {
			list = append(list, s)
		}
	}
	return list
}

// begin reads the files of the previous daemon: the usual rates, the baseline, and a recent attack that had not ended.
func (w *Watcher) begin(d policy.Detect) {
	w.kept = time.Now()
	w.store.clean()
	w.traffic = newTraffic(d.Least, d.Quiet)
	w.traffic.egress = features.Egress() == nil // where the kernel supports it, a policy with detect samples packets at egress
	var before usual
	if err := w.store.readJSON(usualName, &before); err == nil {
		w.traffic.total.take(before.Seconds, before.Hours)
		w.traffic.other.know(&before.Other)
		w.earlier = readable(before.Rules)
		for text, u := range before.Services {
			number, err := strconv.Atoi(text)
			if err != nil || !isService(port(number)) || len(w.traffic.services) >= mostServices {
				continue
			}
			l := newLoad(cmp.Or(u.Name, port(number).String()), d.Least, d.Quiet)
			l.know(&u)
			w.traffic.services[port(number)] = l
		}
	}
	w.learned.samples = w.store.packets(baselineName)
	w.learned.seen = len(w.learned.samples)
	w.openings.samples = w.store.packets(openingsName)
	w.openings.seen = len(w.openings.samples)
	w.firsts = samplesOf(w.openings.samples)
	if good, err := w.good(); err == nil {
		w.traffic.knows(good)
	}
	w.resume()
}

// signed parses the rules of a report. A report in a file has only the rules' lines. It skips rules that this version cannot parse.
func signed(rules []suggest.Rule) (list []suggest.Rule) {
	for _, r := range rules {
		if g, _, err := suggest.ReadSignature(r.Text); err == nil {
			r.Signature = g
			list = append(list, r)
		}
	}
	return list
}

// resume continues the latest attack if that attack had not ended and is recent. Otherwise it ends the attack.
func (w *Watcher) resume() {
	list, err := w.store.List()
	if err != nil {
		w.fail(err)
		return
	}
	for _, s := range list {
		r, err := w.store.Report(s.ID)
		if err != nil || r.Ended != nil {
			continue
		}
		if w.now == nil && time.Since(r.Updated) < resumeWithin && len(w.traffic.total.rate.usual) >= leastSeconds {
			if r.Suggestion != nil {
				r.Suggestion.Rules = signed(r.Suggestion.Rules)
			}
			c := newCollecting(*r, w.databases)
			c.resume(w.store.packets(r.ID + captureFile))
			for _, l := range w.traffic.loads() {
				for _, part := range r.Parts {
					if part.At == l.name {
						l.rate.begin(part.Bound)
						c.joined = append(c.joined, &joined{l, part})
					}
				}
			}
			if len(c.joined) == 0 { // the part is from an earlier version of Floodwall, or its service is no longer known
				w.traffic.total.rate.begin(r.Bound)
				c.join(w.traffic.total, Attack, Facts{At: w.traffic.total.name, Usual: r.Usual})
			}
			w.now = c
			w.show()
			continue
		}
		end := r.last()
		r.Ended, r.Note = &end, "nobody saw its end: the daemon did not run"
		if err := w.store.save(r, nil); err != nil {
			w.fail(err)
		}
	}
}
