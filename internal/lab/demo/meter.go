package demo

import (
	"cmp"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
)

// Drop is how many packets were dropped for one reason.
type Drop struct {
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
}

// reading is the state of all counters at one moment.
type reading struct {
	at                      time.Time
	sent, received, refused uint64
	cpu                     cpuTime
	ran, waited             time.Duration // see receiving
	drops                   []Drop        // by reason; empty without Floodwall
}

// Traffic is what happened on the flood's link in a stretch of time, in packets per second.
type Traffic struct {
	Sent     float64 `json:"flood_sent_pps"`
	Received float64 `json:"received_pps"`
	Lost     float64 `json:"lost_pps"`    // of the flood, since the server's receive queue was full
	Dropped  float64 `json:"dropped_pps"` // by Floodwall
	Busy     float64 `json:"busy"`        // share of the time, 0 to 1, that the server's receive threads ran

	// Disturbed is the share of the time that receive threads waited, as others that go before all processes had the CPU,
	// or that the hypervisor gave the CPU to other machines.
	Disturbed float64 `json:"disturbed"`
}

// read reads all counters. source may be nil.
func (s *scene) read(source *lab.Source, protected bool) (r reading, err error) {
	r.at = time.Now()
	if source != nil {
		r.sent = source.Sent()
	}
	if r.received, err = s.flood.server.Received(); err != nil {
		return r, err
	}
	if r.refused, err = s.flood.server.Refused(); err != nil {
		return r, err
	}
	if r.cpu, err = readCPU(s.hostCPU); err != nil {
		return r, err
	}
	if r.ran, r.waited, err = s.receiving(); err != nil || !protected {
		return r, err
	}
	status, err := s.status()
	if err != nil {
		return r, err
	}
	r.drops = drops(status)
	return r, nil
}

// receiving is how long the server's receive threads ran, and how long they and the clients' waited for a CPU.
func (s *scene) receiving() (ran, waited time.Duration, err error) {
	for _, d := range []*lab.Device{s.flood.server, s.clients.server, s.clients.outside} {
		r, w, err := d.ReceiveTime()
		if err != nil {
			return 0, 0, err
		}
		waited += w
		if d.Host == s.host() {
			ran += r
		}
	}
	return ran, waited, nil
}

// drops lists what Floodwall dropped, the most first.
func drops(s *control.Status) []Drop {
	var found []Drop
	for _, r := range slices.Concat(s.Rules, s.Checks, []control.RuleStatus{s.Default}) {
		if r.Verdict == "drop" && r.Packets > 0 {
			found = append(found, Drop{r.Name, r.Packets})
		}
	}
	slices.SortStableFunc(found, func(a, b Drop) int { return cmp.Compare(b.Packets, a.Packets) })
	return found
}

func (r reading) dropped() (n uint64) {
	for _, d := range r.drops {
		n += d.Packets
	}
	return n
}

func (r reading) since(before reading) Traffic {
	seconds := r.at.Sub(before.at).Seconds()
	rate := func(now, then uint64) float64 { return float64(now-then) / seconds }
	return Traffic{
		Sent: rate(r.sent, before.sent), Received: rate(r.received, before.received),
		Lost: rate(r.refused, before.refused), Dropped: rate(r.dropped(), before.dropped()),
		Busy:      (r.ran - before.ran).Seconds() / seconds,
		Disturbed: (r.waited-before.waited).Seconds()/seconds + r.cpu.stolenSince(before.cpu),
	}
}
