// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Verdict is the verdict about a load that has risen.
type Verdict string

// The verdicts. Only Attack leads to rules.
const (
	Attack  Verdict = "attack"  // this host does not answer the load, and the senders are strangers
	Crowd   Verdict = "crowd"   // more traffic of the usual kind: this host answers the load, and the senders continue
	Scan    Verdict = "scan"    // one sender tries many ports
	Unclear Verdict = "unclear" // this host answers the load or a part of it, and few senders continue: it may be an attack or a crowd
)

// Limits of the verdicts, as shares of the traffic above the usual rate.
const (
	fewAnswered   = 0.25 // an attack has at most this share of answers
	leastAnswered = 0.5  // a crowd has at least this share of answers
	leastBack     = 0.2  // in an answered crowd, least share of packets from senders that are no strangers
	mostBack      = 0.25 // in an attack, largest share of packets from senders that are no strangers
	oneWay        = 0.1  // packets that leave for each that arrives; a service with fewer answers gives no evidence by answers

	unclearFor  = 3 * time.Second  // how long newcomers may take to continue; after that the verdict is given
	goOnFor     = 10 * time.Second // the same if most packets are answered, because some clients send only now and then
	scanShare   = 0.8              // in a scan, least share of the strangers' packets that are from one sender
	scanPorts   = 0.3              // in a scan, least number of different ports for each packet
	mostScan    = 10_000           // packets a second; a faster sender counts as a flood, with any number of ports
	leastOfScan = 50               // least number of packets of a scan
)

// Facts are the facts behind a verdict.
type Facts struct {
	At       string   `json:"at"`                 // the name of the service, or "this host"
	Packets  float64  `json:"packets"`            // packets a second
	Usual    float64  `json:"usual"`              // packets a second in quiet times
	Answered *float64 `json:"answered,omitempty"` // the share of the traffic above the usual that gets its usual answers; nil: not known
	Familiar float64  `json:"familiar"`           // the share of the traffic above the usual that is from senders that are no strangers
	Asked    float64  `json:"asked,omitempty"`    // the share of all traffic that is from senders that were answered a moment ago
	Scan     bool     `json:"scan,omitempty"`     // one sender sends most of the strangers' packets, to many ports
	Scatters bool     `json:"scatters,omitempty"` // far more senders than usual, and each sends far less: then senders that come again are forged, not genuine
	Blind    bool     `json:"blind,omitempty"`    // outgoing packets are not seen, or there are too few samples: answers are unknown
}

// facts returns the facts about a load at present.
func (t *traffic) facts(l *load, now time.Time) Facts {
	l.move(now)
	usual, _ := l.level(now)
	in, out := l.perSecond(&l.in, riseTenths), l.perSecond(&l.out, riseTenths)
	f := Facts{At: l.name, Packets: in, Usual: usual, Asked: t.asked(l, now), Scan: t.scans(l, now)}
	if len(l.rate.usual) < leastSeconds {
		usual = 0
	}
	f.Blind = t.blind(now) || last(l, &l.samples, riseTenths) < riseLeast
	more := max(1, in-usual)
	ratio, familiar := l.ratios()
	if !f.Blind && ratio >= oneWay {
		answered := share01((out - usual*ratio) / (ratio * more))
		f.Answered = &answered
	}
	vouched, returned := l.perSecond(&l.familiar, riseTenths), l.perSecond(&l.returned, riseTenths)
	if returned > 0 || f.Answered != nil && *f.Answered >= leastAnswered {
		f.Scatters = t.scatters(l, now)
	}
	if f.Scatters {
		vouched -= returned
	}
	if l == t.other || l == t.total {
		vouched += t.unseen(now)
	}
	f.Familiar = share01((vouched - usual*familiar) / more)
	return f
}

// asked returns the share of a load's packets that are from senders that were answered a moment ago.
func (t *traffic) asked(l *load, now time.Time) float64 {
	all, asks := 0.0, 0.0
	list := t.window.since(now.Add(-riseTenths * tenth))
	for i := range list {
		s := &list[i]
		if l != t.total && s.place != l {
			continue
		}
		all += s.Stands
		if s.standing == asked {
			asks += s.Stands
		}
	}
	return asks / max(1, all)
}

func share01(v float64) float64 { return min(1, max(0, v)) }

// scans reports whether one sender sends most of the strangers' packets of a load, to many ports.
func (t *traffic) scans(l *load, now time.Time) bool {
	if l != t.other && l != t.total {
		return false
	}
	type sent struct {
		packets int
		ports   map[uint32]bool
	}
	by, all, most := map[string]*sent{}, 0, (*sent)(nil)
	list := t.window.since(now.Add(-riseTenths * tenth))
	for i := range list {
		s := &list[i]
		if s.standing >= known || l == t.other && s.place != l {
			continue
		}
		all++
		from := s.Sender().String()
		if by[from] == nil {
			by[from] = &sent{ports: map[uint32]bool{}}
		}
		to := by[from]
		to.packets++
		to.ports[s.Value[packet.DPort]] = true
		if most == nil || to.packets > most.packets {
			most = to
		}
	}
	return all >= leastOfScan && float64(most.packets) >= scanShare*float64(all) && float64(len(most.ports)) >= scanPorts*float64(most.packets)
}

// verdict judges a load. risen is the time since the load rose. The verdict is "" while it is too early to judge.
func (f *Facts) verdict(risen time.Duration) Verdict {
	answered := 0.0
	if f.Answered != nil {
		answered = *f.Answered
	}
	switch {
	case f.Scan && f.Packets <= mostScan:
		return Scan
	case f.Familiar >= leastAnswered, answered >= leastAnswered && f.Familiar >= leastBack:
		return Crowd
	case risen < unclearFor && (f.Asked >= mostBack || f.Blind):
		return ""
	case f.Blind:
		return Unclear
	case answered <= fewAnswered && f.Familiar <= mostBack:
		return Attack
	case risen < unclearFor, answered >= leastAnswered && risen < goOnFor && !f.Scatters:
		return ""
	}
	return Unclear
}

// Text returns the facts behind the verdict as text.
func (f *Facts) Text() string {
	answered := "it is not known whether it is answered"
	if f.Answered != nil {
		answered = fmt.Sprintf("%.0f%% of it is answered as usual", 100**f.Answered)
	}
	if f.Scatters {
		answered += ", and its senders do not go on as usual ones do"
	}
	if f.Scan {
		answered += ", and most of it is one sender's, to many ports"
	}
	return fmt.Sprintf("%s: %.0f packets/s, usual are %.0f; %s; %.0f%% is from senders that are no strangers", f.At, f.Packets, f.Usual, answered, 100*f.Familiar)
}
