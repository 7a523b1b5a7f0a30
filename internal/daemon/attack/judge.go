package attack

import (
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Verdict is what a load is that has risen.
type Verdict string

// The verdicts. Only an Attack is acted on.
const (
	Attack  Verdict = "attack"  // it is not answered, and its senders are strangers
	Crowd   Verdict = "crowd"   // more of what is usual: this host answers it, and its senders go on
	Scan    Verdict = "scan"    // one sender asks one port after the other
	Unclear Verdict = "unclear" // this host answers it, or a part, and few of its senders go on: it may be either
)

// The bounds of the verdicts, as shares of what comes beside the usual.
const (
	fewAnswered   = 0.25 // of an attack
	leastAnswered = 0.5  // of a crowd
	leastBack     = 0.2  // of a crowd that is answered, from senders that are no strangers
	mostBack      = 0.25 // of an attack
	oneWay        = 0.1  // packets that leave for each that arrives: a service that answers less tells nothing by that

	unclearFor  = 3 * time.Second  // for which newcomers may take to go on; after that the load is told of as it is
	goOnFor     = 10 * time.Second // for which they may where most is answered: some ask only now and then
	scanShare   = 0.8              // of the strangers' packets come from one sender
	scanPorts   = 0.3              // and so many ports to a packet
	mostScan    = 10_000           // packets a second: more is a flood, whatever it asks
	leastOfScan = 50               // packets
)

// Facts are what a verdict rests on.
type Facts struct {
	At       string   `json:"at"`                 // the service, or this host
	Packets  float64  `json:"packets"`            // a second
	Usual    float64  `json:"usual"`              // in quiet times
	Answered *float64 `json:"answered,omitempty"` // the share of what is more than that which is answered as usual; nil: not known
	Familiar float64  `json:"familiar"`           // the share of it from senders that are no strangers
	Asked    float64  `json:"asked,omitempty"`    // the share of all from senders that were answered a moment ago
	Scan     bool     `json:"scan,omitempty"`     // one sender sends most of it to many ports
	Blind    bool     `json:"blind,omitempty"`    // nothing that leaves is seen, or too few samples: what is answered is not known
}

// facts are those of a load now.
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
	f.Familiar = share01((l.perSecond(&l.familiar, riseTenths) - usual*familiar) / more)
	if !f.Blind && ratio >= oneWay {
		answered := share01((out - usual*ratio) / (ratio * more))
		f.Answered = &answered
	}
	return f
}

// asked is the share of what comes to a load from senders that were answered a moment ago.
func (t *traffic) asked(l *load, now time.Time) float64 {
	all, asks := 0.0, 0.0
	list := t.window.since(now.Add(-riseTenths * tenth))
	for i := range list {
		s := &list[i]
		if l != t.total && s.place != l {
			continue
		}
		all += s.packets
		if s.standing == asked {
			asks += s.packets
		}
	}
	return asks / max(1, all)
}

func share01(v float64) float64 { return min(1, max(0, v)) }

// scans reports whether one sender sends most of what strangers send to a load, to many ports.
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

// verdict judges a load that has risen for so long. It is "" while that is too early to say.
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
	case risen < unclearFor, answered >= leastAnswered && risen < goOnFor:
		return ""
	}
	return Unclear
}

// Text says what decided.
func (f *Facts) Text() string {
	answered := "it is not known whether it is answered"
	if f.Answered != nil {
		answered = fmt.Sprintf("%.0f%% of it is answered as usual", 100**f.Answered)
	}
	if f.Scan {
		answered += ", and most of it is one sender's, to many ports"
	}
	return fmt.Sprintf("%s: %.0f packets/s, usual are %.0f; %s; %.0f%% is from senders that are no strangers", f.At, f.Packets, f.Usual, answered, 100*f.Familiar)
}
