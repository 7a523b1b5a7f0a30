// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Report is the report of an attack.
type Report struct {
	ID         string     `json:"id"` // the start in UTC, such as 20260102-150405
	Started    time.Time  `json:"started"`
	Ended      *time.Time `json:"ended,omitempty"` // the end of the attack's last second; nil while the attack continues
	Active     float64    `json:"active"`          // counted seconds of the attack, without its pauses
	Last       time.Time  `json:"last"`            // the end of the last counted second
	Updated    time.Time  `json:"updated"`
	Policy     string     `json:"policy"`
	Generation int        `json:"generation"`
	Target     string     `json:"target"`
	Devices    []string   `json:"devices"`

	Places []control.DeviceStatus `json:"places,omitempty"` // where the program of each device ran at the start, and after each change of its mode

	Usual   float64        `json:"usual"` // packets a second of the whole host in quiet times
	Bound   float64        `json:"bound"` // the bound that the first part exceeded
	Peak    operate.Rate   `json:"peak"`  // the highest rate in any second
	Passed  operate.Amount `json:"passed"`
	Dropped operate.Amount `json:"dropped"`
	Reasons []Reason       `json:"reasons"` // decisions of each rule, check and default, the most frequent first

	Outcomes []Reason `json:"outcomes,omitempty"` // results of packets to protected services; a rule counts these packets also

	Vectors    []Vector         `json:"vectors"`              // kinds of packets, the most frequent first
	Samples    *operate.Samples `json:"samples,omitempty"`    // nil when there are no samples
	Captured   int              `json:"captured"`             // packets in the capture
	Suggestion *Suggestion      `json:"suggestion,omitempty"` // nil while no rule was found
	Steps      []Step           `json:"steps,omitempty"`      // actions on automatic rules
	Advice     []string         `json:"advice,omitempty"`     // remedies where no rule is safe
	Times      Times            `json:"times,omitzero"`       // times of the steps of the reaction
	NoRule     string           `json:"no_rule,omitempty"`    // why `auto` adds no rule
	Note       string           `json:"note,omitempty"`       // why data is missing

	Parts []Part `json:"parts,omitempty"` // the attacked services, or this host, in the order in which they joined
}

// Part is an attacked service, or this host.
type Part struct {
	Facts
	Verdict Verdict `json:"verdict"`
	Bound   float64 `json:"bound"` // the bound that was exceeded, in packets a second
}

// Times contains when steps of the reaction first happened, in seconds after the first packet above the usual rate; 0: never.
type Times struct {
	Named     float64 `json:"named,omitempty"`
	Suggested float64 `json:"suggested,omitempty"`
	Dropped   float64 `json:"dropped,omitempty"` // when an automatic rule first dropped a packet
}

// Reason is the number of packets about which a rule, a check or the default decided during the attack.
type Reason struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Stage   string `json:"stage"`
	operate.Amount
}

// Vector is a kind of packets of the attack. Fields of the packets distinguish the kinds.
type Vector struct {
	Name  string  `json:"name"`  // such as "NTP amplification" or "SYN flood"
	Share float64 `json:"share"` // of the samples
	Error float64 `json:"error"` // in percent of the share, with 95% confidence
}

// Suggestion contains rules against the packets that pass. The rules are not applied.
type Suggestion struct {
	Found    time.Time      `json:"found"`
	Expires  time.Time      `json:"expires"`  // the end of the rules' validity, because attacks change
	Baseline int            `json:"baseline"` // number of legitimate samples on which the rules were tested; 0: the harm is unknown
	Rules    []suggest.Rule `json:"rules"`

	Coverage   suggest.Share `json:"coverage"`             // the share of the passing packets that the rules match
	Collateral *suggest.Harm `json:"collateral,omitempty"` // the share of the baseline that the rules match
}

// Text returns the times as text; "" when there are none.
func (t Times) Text() string {
	var list []string
	for _, step := range []struct {
		name string
		at   float64
	}{{"named", t.Named}, {"rule suggested", t.Suggested}, {"dropped", t.Dropped}} {
		if step.at > 0 {
			list = append(list, fmt.Sprintf("%s %.1f s", step.name, step.at))
		}
	}
	return strings.Join(list, ", ")
}

// Summary is a report's entry in a list.
type Summary struct {
	ID      string         `json:"id"`
	Started time.Time      `json:"started"`
	Ended   *time.Time     `json:"ended,omitempty"`
	Peak    operate.Rate   `json:"peak"`
	Passed  operate.Amount `json:"passed"`
	Dropped operate.Amount `json:"dropped"`
	Vectors []string       `json:"vectors"`
	At      []string       `json:"at,omitempty"`      // the attacked services, or this host
	Verdict Verdict        `json:"verdict,omitempty"` // the verdict about the first of them
}

// Summary returns the report's entry in a list.
func (r *Report) Summary() Summary {
	s := Summary{ID: r.ID, Started: r.Started, Ended: r.Ended, Peak: r.Peak, Passed: r.Passed, Dropped: r.Dropped, Vectors: []string{}}
	for _, p := range r.Parts {
		s.At = append(s.At, p.At)
		s.Verdict = cmp.Or(s.Verdict, p.Verdict)
	}
	for _, v := range r.Vectors {
		s.Vectors = append(s.Vectors, v.Name)
	}
	return s
}

// Lasted returns the duration of the attack until now or until its end, as text. Every view shows this duration.
func (r *Report) Lasted() string { return lasted(r.Started, r.last()) }

// Lasted returns the duration of the attack as text.
func (s *Summary) Lasted() string {
	if s.Ended == nil {
		return "goes on"
	}
	return lasted(s.Started, *s.Ended)
}

func lasted(begin, end time.Time) string { return wording.Span(end.Sub(begin).Round(time.Second)) }

// last returns the end of the last second of the attack. Reports of Floodwall before 1.0 lack the field Last.
func (r *Report) last() time.Time {
	switch {
	case !r.Last.IsZero():
		return r.Last
	case r.Ended != nil:
		return *r.Ended
	}
	return r.Updated
}

// Place returns where the bound was exceeded, as text.
func (r *Report) Place() string {
	if len(r.Parts) == 0 {
		return "at this host"
	}
	return "at " + r.Parts[0].At
}

// Headline returns the attack as one line.
func (r *Report) Headline() string {
	var names []string
	for _, v := range r.Vectors {
		names = append(names, v.Name)
	}
	what := cmp.Or(strings.Join(names, ", "), "of unknown kind")
	at := ""
	if len(r.Parts) > 0 {
		at = " at " + r.Parts[0].At
		if p := r.Parts[0]; p.Usual >= 1 && p.Packets > p.Usual {
			at += fmt.Sprintf(", %.0f times its usual", p.Packets/p.Usual)
		}
		if r.Parts[0].Verdict == Unclear {
			what += " or a crowd"
		}
	}
	text := fmt.Sprintf("attack %s: %s%s", r.ID, what, at)
	if r.Peak.Packets > 0 { // 0 when the daemon ended before it counted a second of the attack
		text += fmt.Sprintf(", peak %.0f packets/s and %.1f Mbit/s", r.Peak.Packets, r.Peak.Bits/1e6)
	}
	return text
}

// add adds the counters of one second. The second ended at end.
func (r *Report) add(t *operate.Top, end time.Time) {
	r.Active += t.Seconds
	r.Last = end.UTC()
	r.place(t.Places)
	for _, now := range t.Reasons {
		switch more := (Reason{now.Name, now.Verdict, now.Stage, amount(now.Rate, t.Seconds)}); {
		case now.Observe:
		case now.Beside:
			r.Outcomes = more.addTo(r.Outcomes)
		default:
			r.Reasons = more.addTo(r.Reasons)
		}
	}
	r.Passed.Add(amount(t.Passed, t.Seconds)) // the sum of the reasons would be wrong: several reasons may count the same packet
	r.Dropped.Add(amount(t.Dropped, t.Seconds))
	all := operate.Rate{Packets: t.Passed.Packets + t.Dropped.Packets, Bits: t.Passed.Bits + t.Dropped.Bits}
	r.Peak = operate.Rate{Packets: max(r.Peak.Packets, all.Packets), Bits: max(r.Peak.Bits, all.Bits)}
}

// place adds the devices whose mode has changed.
func (r *Report) place(now []control.DeviceStatus) {
	for _, d := range now {
		last := -1
		for i := range r.Places {
			if r.Places[i].Name == d.Name {
				last = i
			}
		}
		if last < 0 || r.Places[last].Mode != d.Mode {
			r.Places = append(r.Places, d)
		}
	}
}

// movedBefore is how long before the begin of an attack the program may have moved because of it: a flood moves the program after a tenth of a second,
// and the daemon looks for attacks once a second.
const movedBefore = 2 * time.Second

// PlacesText returns where the program of each device ran, and when this changed, as text. clock returns the text of a time.
func (r *Report) PlacesText(clock func(time.Time) string) string {
	var texts []string
	for _, d := range r.Places {
		switch {
		case d.Mode == "":
		case d.Since.After(r.Started.Add(-movedBefore)):
			texts = append(texts, fmt.Sprintf("%s %s from %s", d.Name, d.Mode, clock(*d.Since)))
		default:
			texts = append(texts, d.Name+" "+d.Mode)
		}
	}
	return strings.Join(texts, ", ")
}

// addTo adds the packets of a reason to a list. It returns the list, sorted with the most frequent reason first.
func (r Reason) addTo(list []Reason) []Reason {
	same := func(o Reason) bool { return o.Name == r.Name && o.Verdict == r.Verdict && o.Stage == r.Stage }
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i].Add(r.Amount)
	} else {
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(a, b Reason) int { return cmp.Compare(b.Packets, a.Packets) })
	return list
}

// amount returns the number of packets and bytes that a rate gives in this many seconds.
func amount(r operate.Rate, seconds float64) operate.Amount {
	return operate.Amount{Packets: uint64(r.Packets*seconds + 0.5), Bytes: uint64(r.Bits/8*seconds + 0.5)}
}
