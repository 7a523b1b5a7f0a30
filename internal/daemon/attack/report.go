package attack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Report is what is known of an attack.
type Report struct {
	ID         string     `json:"id"` // its beginning, as 20260102-150405 in UTC
	Started    time.Time  `json:"started"`
	Ended      *time.Time `json:"ended,omitempty"` // the end of its last second; nil while it goes on
	Active     float64    `json:"active"`          // seconds of the attack that were counted: those without the pauses of the attacker
	Last       time.Time  `json:"last"`            // the end of the last of them
	Updated    time.Time  `json:"updated"`
	Policy     string     `json:"policy"`
	Generation int        `json:"generation"`
	Target     string     `json:"target"`
	Devices    []string   `json:"devices"`

	Usual   float64        `json:"usual"` // packets a second in quiet times
	Bound   float64        `json:"bound"` // that was exceeded
	Peak    operate.Rate   `json:"peak"`  // of a second
	Passed  operate.Amount `json:"passed"`
	Dropped operate.Amount `json:"dropped"`
	Reasons []Reason       `json:"reasons"` // rules, checks and the default, with what each decided, the most first

	Outcomes []Reason `json:"outcomes,omitempty"` // what became of packets of protected services, which a rule counts too

	Vectors    []Vector         `json:"vectors"`              // kinds of packets, the most frequent first
	Samples    *operate.Samples `json:"samples,omitempty"`    // nil when none were taken
	Captured   int              `json:"captured"`             // packets of the capture
	Suggestion *Suggestion      `json:"suggestion,omitempty"` // nil while nothing was found
	Steps      []Step           `json:"steps,omitempty"`      // with automatic rules
	Advice     []string         `json:"advice,omitempty"`     // where no rule is safe: what helps instead
	Times      Times            `json:"times,omitzero"`       // of the steps
	Note       string           `json:"note,omitempty"`       // why something is missing

	Parts []Part `json:"parts,omitempty"` // the services that it is at, or this host; those that joined first are first
}

// Part is a service, or this host, that the attack is at.
type Part struct {
	Facts
	Verdict Verdict `json:"verdict"`
	Bound   float64 `json:"bound"` // packets a second that were exceeded
}

// Times are when something was done first, in seconds after the first packet above the usual; 0: never.
type Times struct {
	Named     float64 `json:"named,omitempty"`
	Suggested float64 `json:"suggested,omitempty"`
	Dropped   float64 `json:"dropped,omitempty"` // by an automatic rule
}

// Reason is what a rule, a check or the default decided during the attack.
type Reason struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Stage   string `json:"stage"`
	operate.Amount
}

// Vector is a kind of packets of the attack, by their fields.
type Vector struct {
	Name  string  `json:"name"`  // as "NTP amplification" or "SYN flood"
	Share float64 `json:"share"` // of the samples
	Error float64 `json:"error"` // of the share, in percent of it, with 95% confidence
}

// Suggestion is rules against what passes, which nobody has applied.
type Suggestion struct {
	Found    time.Time      `json:"found"`
	Expires  time.Time      `json:"expires"`  // until when they are to be taken for right: the attack changes
	Baseline int            `json:"baseline"` // samples of legitimate traffic that they were held against; 0: nothing is known of the harm
	Rules    []suggest.Rule `json:"rules"`

	Coverage   suggest.Share `json:"coverage"`             // of what passed
	Collateral *suggest.Harm `json:"collateral,omitempty"` // of the baseline
}

// Text lists them; "" when there are none.
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

// Summary is a report in a list.
type Summary struct {
	ID      string         `json:"id"`
	Started time.Time      `json:"started"`
	Ended   *time.Time     `json:"ended,omitempty"`
	Peak    operate.Rate   `json:"peak"`
	Passed  operate.Amount `json:"passed"`
	Dropped operate.Amount `json:"dropped"`
	Vectors []string       `json:"vectors"`
	At      []string       `json:"at,omitempty"`      // the services that it is at, or this host
	Verdict Verdict        `json:"verdict,omitempty"` // of the first of them
}

// Summary is the report in short.
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

// Lasted is how long the attack went on, or goes on, to the second. Every view shows this time.
func (r *Report) Lasted() string { return lasted(r.Started, r.last()) }

// Lasted is how long the attack went on.
func (s *Summary) Lasted() string {
	if s.Ended == nil {
		return "goes on"
	}
	return lasted(s.Started, *s.Ended)
}

func lasted(begin, end time.Time) string { return wording.Span(end.Sub(begin).Round(time.Second)) }

// last is the end of the last second of the attack. Reports of Floodwall before 1.0 lack it.
func (r *Report) last() time.Time {
	switch {
	case !r.Last.IsZero():
		return r.Last
	case r.Ended != nil:
		return *r.Ended
	}
	return r.Updated
}

// Headline is the attack in one line.
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
	if r.Peak.Packets > 0 { // of an attack that ended with its daemon nobody may have counted a second
		text += fmt.Sprintf(", peak %.0f packets/s and %.1f Mbit/s", r.Peak.Packets, r.Peak.Bits/1e6)
	}
	return text
}

// add adds a second of counters, which ended at a time.
func (r *Report) add(t *operate.Top, end time.Time) {
	r.Active += t.Seconds
	r.Last = end.UTC()
	for _, now := range t.Reasons {
		switch more := (Reason{now.Name, now.Verdict, now.Stage, amount(now.Rate, t.Seconds)}); {
		case now.Observe:
		case now.Beside:
			r.Outcomes = more.addTo(r.Outcomes)
		default:
			r.Reasons = more.addTo(r.Reasons)
		}
	}
	r.Passed.Add(amount(t.Passed, t.Seconds)) // not the sum of the reasons: several may count the same packet
	r.Dropped.Add(amount(t.Dropped, t.Seconds))
	all := operate.Rate{Packets: t.Passed.Packets + t.Dropped.Packets, Bits: t.Passed.Bits + t.Dropped.Bits}
	r.Peak = operate.Rate{Packets: max(r.Peak.Packets, all.Packets), Bits: max(r.Peak.Bits, all.Bits)}
}

// addTo adds what a reason decided to a list, which has the most first.
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

// amount is what came at a rate in some seconds.
func amount(r operate.Rate, seconds float64) operate.Amount {
	return operate.Amount{Packets: uint64(r.Packets*seconds + 0.5), Bytes: uint64(r.Bits/8*seconds + 0.5)}
}
