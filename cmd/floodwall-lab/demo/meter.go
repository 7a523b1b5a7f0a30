// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
)

// Drop is the number of packets that were dropped for one reason.
type Drop struct {
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
}

// reading has the values of all counters at one moment.
type reading struct {
	at                      time.Time
	sent, received, refused uint64
	cpu                     cpuTime
	ran, waited             time.Duration // see receiving
	drops                   []Drop        // by reason; empty without Floodwall
}

// Traffic describes the traffic on the flood's link during some time, in packets per second.
type Traffic struct {
	Sent     float64 `json:"flood_sent_pps"`
	Received float64 `json:"received_pps"`
	Lost     float64 `json:"lost_pps"`    // packets of the flood that were lost because the server's receive queue was full
	Dropped  float64 `json:"dropped_pps"` // packets that Floodwall dropped
	Busy     float64 `json:"busy"`        // share of the time in which the server's receive threads ran, 0 to 1

	// Disturbed is a share of the time. In this share, receive threads waited for the CPU, or the hypervisor gave the CPU to other machines. Receive
	// threads wait if other threads with a priority above all processes have the CPU.
	Disturbed float64 `json:"disturbed"`
}

// read reads all counters. The parameter source may be nil.
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

// receiving returns two times: how long the server's receive threads ran, and how long these and the clients' receive threads waited for a CPU.
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

// drops returns Floodwall's drops by reason. The most frequent reason is first.
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
