package attack

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/policy"
)

// This file keeps what quiet times are like, for the daemon that starts next.

// usual is what a daemon that starts knows of the times before.
type usual struct {
	Seconds  []float64           `json:"seconds"`            // packets of quiet ones
	Hours    []mean              `json:"hours,omitempty"`    // packets a second, by the hour of the week, from Sunday on
	Other    usualFor            `json:"other"`              // what goes to no known service
	Services map[string]usualFor `json:"services,omitempty"` // by the port, as packet.DPort has it
	Rules    []string            `json:"rules,omitempty"`    // automatic ones of attacks before, the latest first
}

// usualFor is that of a service.
type usualFor struct {
	Name     string    `json:"name"`
	Seconds  []float64 `json:"seconds"`
	Hours    []mean    `json:"hours"`
	In       float64   `json:"in"`
	Out      float64   `json:"out"`
	Familiar float64   `json:"familiar"`
}

func rounded(list []float64) []float64 {
	out := make([]float64, len(list))
	for i, v := range list {
		out[i] = math.Round(10*v) / 10
	}
	return out
}

// usualOf is what is known of a load.
func usualOf(l *load) usualFor {
	return usualFor{l.name, rounded(l.rate.usual), l.hours[:], l.usualIn, l.usualOut, l.usualOld}
}

// keepUsual writes what quiet times are like.
func (w *Watcher) keepUsual() {
	w.kept = w.at
	total := w.traffic.total
	u := usual{Seconds: total.rate.usual, Hours: total.hours[:], Other: usualOf(w.traffic.other), Services: map[string]usualFor{}, Rules: w.earlier}
	for p, l := range w.traffic.services {
		u.Services[strconv.Itoa(int(p))] = usualOf(l)
	}
	err := w.store.writeJSON(usualName, u)
	if len(w.learned.samples) >= leastBaseline {
		err = errors.Join(err, w.store.writePackets(baselineName, w.learned.samples))
	}
	if err != nil {
		w.fail(err)
	}
}

// take has a load know the times before. What a file has that cannot be is left out.
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

// isRate reports whether a number can be packets a second.
func isRate(v float64) bool { return v >= 0 && v < 1e12 }

// know has a load know the times before.
func (l *load) know(u *usualFor) {
	l.take(u.Seconds, u.Hours)
	if isRate(u.In) && isRate(u.Out) && isRate(u.Familiar) {
		l.usualIn, l.usualOut, l.usualOld = u.In, u.Out, u.Familiar
	}
}

// readable are those of rules that this version reads.
func readable(rules []string) []string {
	rules = slices.DeleteFunc(rules, func(text string) bool {
		s, _, err := suggest.ReadSignature(text)
		return err != nil || s.Vague()
	})
	return rules[:min(len(rules), mostEarlier)]
}

// begin takes up what the daemon before has written: the usual rates, the baseline, and an attack that went on a moment ago.
func (w *Watcher) begin(d policy.Detect) {
	w.kept = time.Now()
	w.store.clean()
	w.traffic = newTraffic(d.Least, d.Quiet)
	w.traffic.egress = features.Egress() == nil // where the kernel can, a policy with detect has it sampled
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
	if good, err := w.good(); err == nil {
		w.traffic.knows(good)
	}
	w.resume()
}

// resume takes up the latest attack when it had not ended, or ends it when that is too long ago.
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
			if len(c.joined) == 0 { // of a version before, or of a service that is not known any more
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
