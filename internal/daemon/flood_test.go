// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/policy"
)

// TestFloodDecides looks at packets that arrive at given times, as often as the mover looks, and compares the times at which a flood begins and ends.
func TestFloodDecides(t *testing.T) {
	x := policy.XDP{When: policy.XDPFlooded, Start: 20_000, Calm: 10 * time.Minute}
	rate := func(perSecond float64, on func(time.Duration) bool) func(at time.Duration) float64 {
		return func(at time.Duration) float64 {
			if on(at) {
				return perSecond / 1000
			}
			return 0
		}
	}
	from := func(begin, end time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return begin <= at && at < end }
	}
	const ms, s, m = time.Millisecond, time.Second, time.Minute
	for name, c := range map[string]struct {
		packets func(at time.Duration) float64 // that arrive within a millisecond
		lasts   time.Duration
		late    time.Duration // how late each look is
		moves   [][2]time.Duration
	}{
		"a burst of 2,000 packets":             {rate(2e6, from(10*s+50*ms, 10*s+51*ms)), m, 0, nil},
		"a burst of a million, across a look":  {rate(2e7, from(10*s-25*ms, 10*s+25*ms)), m, 0, nil},
		"a high rate that is below start":      {rate(19_000, from(s, 30*m)), 30 * m, 0, nil},
		"a burst of a million, found in time":  {rate(2e7, from(10*s+40*ms, 10*s+89*ms)), m, 0, nil},
		"the same, and looks come 20 ms late":  {rate(2e7, from(10*s+40*ms, 10*s+89*ms)), m, 20 * ms, nil},
		"the same, and looks come 90 ms late":  {rate(2e7, from(10*s+40*ms, 10*s+89*ms)), m, 90 * ms, nil},
		"small bursts, each 100 ms":            {rate(1.1e6, func(at time.Duration) bool { return at%(100*ms) == 7*ms }), m, 0, nil},
		"100 kpps after a look":                {rate(1e5, from(10*s+1*ms, 11*s)), m, 0, [][2]time.Duration{{10*s + 60*ms, 10*s + 121*ms}}},
		"100 kpps, too late for the next look": {rate(1e5, from(10*s+41*ms, 11*s)), m, 0, [][2]time.Duration{{10*s + 100*ms, 10*s + 171*ms}}},
		"1 Mpps, looks that come 20 ms late":   {rate(1e6, from(10*s+1*ms, 11*s)), m, 20 * ms, [][2]time.Duration{{10*s + 60*ms, 10*s + 201*ms}}},
		"100 kpps, a third of each 10 ms":      {rate(3e5, func(at time.Duration) bool { return at >= 10*s && at < 11*s && at%(10*ms) < 4*ms }), m, 0, [][2]time.Duration{{10*s + 60*ms, 10*s + 171*ms}}},
		"5 s on, 20 s off for ten minutes": {rate(1e5, func(at time.Duration) bool { return at >= m && at < 11*m && at%(25*s) < 5*s }), 25 * m, 0,
			[][2]time.Duration{{m, m + 25*s}, {20 * m, 21*m + s}}},
	} {
		f, last, moves := &flood{known: true}, time.Duration(0), []time.Duration(nil)
		begin := time.Now()
		n, next := 0.0, floodLook
		for at := time.Duration(0); at < c.lasts; at += ms {
			n += c.packets(at)
			if at < next {
				continue
			}
			if f.see(x, n, begin.Add(last), begin.Add(at)) {
				moves = append(moves, at)
			}
			n, last, next = 0, at, at+floodLook+c.late
			if !f.on && !f.high.IsZero() {
				next = at + floodSure + c.late
			}
		}
		if !slices.EqualFunc(moves, c.moves, func(at time.Duration, within [2]time.Duration) bool { return within[0] <= at && at <= within[1] }) {
			t.Errorf("%s: moves at %v, want them within %v", name, moves, c.moves)
		}
	}
}

// TestLossesUnread fails to read the losses. They must be read once a second all the same, the error must last until they are read, and the rate be 0.
func TestLossesUnread(t *testing.T) {
	var l losses
	fails, reads := errors.New("unreadable"), 0
	begin := time.Now()
	for at := time.Duration(0); at <= 4*time.Second; at += floodLook {
		rate := l.look(func() (control.Losses, error) {
			reads++
			if at >= 3*time.Second {
				return control.Losses{}, nil
			}
			return control.Losses{}, fails
		}, begin.Add(at))
		if rate != 0 || (l.err != nil) != (at < 3*time.Second) {
			t.Errorf("after %v: rate %f, error %v", at, rate, l.err)
		}
	}
	if reads != 5 {
		t.Errorf("read %d times in 4 s", reads)
	}
}
