// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// TestClock uses a hub whose clock is 40 s ahead. Late messages must not set the time back, even if a hundred arrive in a row. When the hub's clock
// is set back, the node must follow within a minute.
func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	start := time.Now()
	if is := c.at(start); !is.Equal(start) {
		t.Errorf("before a hub was heard, the time is %v ahead", is.Sub(start))
	}
	for i, test := range []struct {
		after, late, ahead time.Duration // time of the message after the previous one, its delay, and how far the hub's clock is ahead
		times              int
		want               time.Duration // how far the time of the fleet must then be ahead
	}{
		{0, 3 * time.Second, 40 * time.Second, 1, 37 * time.Second}, // the node has no better message yet
		{time.Second, 0, 40 * time.Second, 1, 40 * time.Second},
		{2 * time.Second, 5 * time.Second, 40 * time.Second, 100, 40 * time.Second},
		{31 * time.Second, 5 * time.Second, 40 * time.Second, 100, 40 * time.Second},
		{40 * time.Second, 0, -10 * time.Second, 1, 40 * time.Second},
		{62 * time.Second, 0, -10 * time.Second, 1, 35 * time.Second},
		{93 * time.Second, 0, -10 * time.Second, 1, -10 * time.Second},
	} {
		now := start.Add(test.after)
		for range test.times {
			c.heardAt(1, now.Round(0).Add(test.ahead-test.late), now)
		}
		if is := c.at(now).Sub(now.Round(0)); is.Round(time.Millisecond) != test.want {
			t.Errorf("step %d: the time is %v ahead, want %v", i, is, test.want)
		}
	}
}

// TestClockPartition uses three hubs that were silent for ten minutes. If their first messages are late, the time of the fleet must not change. If
// their clocks were set back during the silence, the node must follow within a minute.
func TestClockPartition(t *testing.T) {
	t.Parallel()
	var c clock
	now := time.Now()
	beat := func(behind time.Duration) time.Duration {
		for hub := range uint64(3) {
			c.heardAt(hub+1, now.Round(0).Add(-behind), now)
		}
		return c.at(now).Sub(now.Round(0)).Round(time.Millisecond)
	}
	beat(0)
	now = now.Add(10 * time.Minute)
	if ahead := beat(8 * time.Second); ahead != 0 {
		t.Errorf("after late messages the time is %v ahead", ahead)
	}
	for until := now.Add(2 * clockSpan); now.Before(until); now = now.Add(wire.BeatEvery) {
		beat(8 * time.Second)
	}
	if ahead := beat(8 * time.Second); ahead != -8*time.Second {
		t.Errorf("a minute after the hubs were set back by 8s the time is %v ahead", ahead)
	}
}

// TestClockLeap uses hubs whose clocks leap. Each hub sends a pulse every two seconds. If there is a single hub, the node must follow it after three
// pulses. If there are several, the node must never follow only one of them. Messages between the pulses must change nothing, even if a hundred
// arrive at once.
func TestClockLeap(t *testing.T) {
	t.Parallel()
	const far = time.Hour
	type hubs []time.Duration // how far the clock of each is ahead
	for _, test := range []struct {
		name  string
		beats []hubs
		times int // the number of pulses at the end
		want  time.Duration
	}{
		{"one hub, once", []hubs{{0}, {0}, {0}, {far}, {0}}, 60, 0},
		{"one hub, now and then", []hubs{{0}, {0}, {0}, {far}, {far}, {0}, {far}, {far}}, 1, 0},
		{"one hub, for good", []hubs{{0}, {0}, {0}, {far}}, 3, far},
		{"the first message was late", []hubs{{-30 * time.Second}, {0}}, 1, 0},
		{"one hub of two", []hubs{{0, 0}, {0, 0}, {0, 0}, {far, 0}}, 100, 0},
		{"both of two", []hubs{{0, 0}, {0, 0}, {0, 0}, {far, far}}, 3, far},
		{"one of two goes back", []hubs{{0, 0}, {-far, 0}}, 100, 0},
		{"a second hub, which is wrong", []hubs{{0}, {0, far}}, 100, 0},
		{"one hub of three", []hubs{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, far, 0}}, 100, 0},
		{"one hub of three from the start", []hubs{{far, 0, 0}}, 100, 0},
		{"two hubs of three", []hubs{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {far, 0, far}}, 3, far},
		{"the others are gone", []hubs{{0, far, 0}, {far, far, far}, {far, far, far}, {far, far, far}, {far, far}, {far}}, 16, far},
	} {
		var c clock
		start, leaps := time.Now(), 0
		now, before := start, time.Duration(0)
		for range test.times - 1 {
			test.beats = append(test.beats, test.beats[len(test.beats)-1])
		}
		for i, beat := range test.beats {
			now = now.Add(wire.BeatEvery)
			for hub, ahead := range beat {
				leapt := c.heardAt(uint64(hub+1), now.Round(0).Add(ahead), now)
				is := c.at(now).Sub(now.Round(0))
				if want := (is-before).Abs() > wire.Ahead && i+hub > 0; leapt != want {
					t.Errorf("%s: it says that the time leapt: %v; from %v to %v", test.name, leapt, before, is)
				} else if leapt {
					leaps++
				}
				before = is
			}
			for range 100 {
				c.heardAt(anyHub, now.Round(0).Add(far), now)
			}
		}
		if before.Round(time.Millisecond) != test.want || leaps > 1 {
			t.Errorf("%s: the time is %v ahead after %d leaps, want %v", test.name, before, leaps, test.want)
		}
	}
}

// TestWrongHub sets the clock of one hub of three an hour ahead. No ban with a length of an hour may end on the node, and hubs with the right time
// must accept the node's statements. When all hubs are an hour ahead, the node must follow, and request all records again.
func TestWrongHub(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "")
	beat := func(ahead ...time.Duration) {
		for hub, by := range ahead {
			a.pulse(&nats.Msg{Data: wire.Pulse{Hub: uint64(hub + 1), Now: time.Now().Add(by), Epoch: 1, Through: 7}.Bytes()})
		}
	}
	beat(0, 0, 0)
	a.stream.complete(7)
	other := netip.MustParsePrefix("198.51.100.2/32")
	a.prefixes.enter(other, time.Now().Add(30*time.Minute))
	for range 10 {
		beat(0, time.Hour, 0)
	}
	for range 61 {
		a.sweep()
	}
	if !a.prefixes.of(other).entered {
		t.Error("the ban of another node has ended by the wrong hub")
	}
	a.Local([]Local{{Prefix: one, Start: time.Now(), End: time.Now().Add(time.Hour)}}, false)
	said := a.gather()
	if len(said) != 1 {
		t.Fatalf("it is said: %v", said)
	}
	if err := wire.CheckStatement(one, &said[0].Statement, time.Now()); err != nil {
		t.Errorf("a hub with the right time refuses the node's ban: %v", err)
	}
	if a.stream.through != 7 || !a.stream.synced {
		t.Error("records are asked for again while the time is the same")
	}
	for range 10 {
		beat(time.Hour, time.Hour, time.Hour)
	}
	if ahead := time.Until(a.clock.now()); ahead < 50*time.Minute || a.stream.through != 0 || a.stream.synced || a.stream.behind.IsZero() {
		t.Errorf("after all hubs leapt the time is %v ahead, and records are known through %d", ahead, a.stream.through)
	}
}
