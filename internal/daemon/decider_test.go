// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

var decisive = offer{saves: 0.1, costs: 0.5}

// run gives a decider one offer per second. It repeats each offer as often as the offer says. It returns the seconds in which the decider moved
// rules.
func (d *decider) run(begin time.Time, from int, offers ...offer) (moves []int) {
	for i, o := range offers {
		now := begin.Add(time.Duration(from+i) * time.Second)
		if d.decide(now, o) {
			d.moved(now)
			moves = append(moves, from+i)
		}
	}
	return moves
}

func repeat(o offer, n int) (list []offer) {
	for range n {
		list = append(list, o)
	}
	return list
}

// TestDeciderHolds makes offers that last, that do not last, and that are too small.
func TestDeciderHolds(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	for _, test := range []struct {
		name   string
		offers []offer
		want   int // the second of the first move, -1 for none
	}{
		{"one that lasts", repeat(decisive, 5), 2},
		{"nothing", repeat(offer{}, 20), -1},
		{"every other second", append(append(append(repeat(decisive, 1), offer{}), decisive), offer{}), -1},
		{"a small share", repeat(offer{saves: 0.024, costs: 0.5}, 20), -1},
		{"a share that is enough", repeat(offer{saves: 0.025, costs: 0.5}, 20), 2},
		{"little of a CPU", repeat(offer{saves: 0.0019, costs: 0.002}, 20), -1},
		{"enough of a CPU", repeat(offer{saves: 0.002, costs: 0.002}, 20), 2},
		{"a loss", repeat(offer{saves: -1, costs: 0.5}, 20), -1},
		{"a loss that must be", repeat(offer{saves: -1, costs: 0.5, must: true}, 5), 2},
	} {
		d := &decider{since: begin}
		moves := d.run(begin, 1, test.offers...)
		first := -1
		if moves != nil {
			first = moves[0]
		}
		if first != test.want {
			t.Errorf("%s: the first move is at %d s, want %d", test.name, first, test.want)
		}
	}
}

// TestDeciderDwells offers the previous placement as soon as a rule has moved.
func TestDeciderDwells(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	d := &decider{since: begin}
	for half := 1; half < 20; half++ { // twice a second, to check between its samples too
		now := begin.Add(time.Duration(half) * time.Second / 2)
		if d.decide(now, decisive) {
			if now.Sub(d.since) < leastDwell {
				t.Fatalf("it moves %v after the last move", now.Sub(d.since))
			}
			d.moved(now)
		}
	}
	if d.since.Equal(begin) {
		t.Error("it never moves")
	}
}

// TestDeciderBudget alternates between two offers forever. There must be six moves, and then one move every ten seconds. A time without offers must
// restore the six moves.
func TestDeciderBudget(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	d := &decider{since: begin}
	moves := d.run(begin, 1, repeat(decisive, 600)...)
	if n := len(moves); n < 64 || n > 66 {
		t.Errorf("%d moves in 600 s", n)
	}
	random := testutil.Random(t)
	var offers []offer
	for range 10_000 {
		offers = append(offers, []offer{decisive, {}}[random.IntN(5)/4])
	}
	d = &decider{since: begin}
	moves = d.run(begin, 1, offers...)
	for i := mostMoves; i < len(moves); i++ {
		if took := moves[i] - moves[i-mostMoves]; took < 10 {
			t.Fatalf("%d moves within %d s", mostMoves+1, took)
		}
	}
	for i := 2 * mostMoves; i < len(moves); i++ {
		if took := moves[i] - moves[i-2*mostMoves]; took < 60 {
			t.Fatalf("%d moves within %d s", 2*mostMoves+1, took)
		}
	}
	if len(moves) < 500 {
		t.Errorf("only %d moves in 10,000 s", len(moves))
	}
	again := d.run(begin, 20_000, repeat(decisive, 14)...)
	if len(again) < mostMoves {
		t.Errorf("%d moves after a rest", len(again))
	}
}

// TestDeciderFails makes a move fail. The next move must be tried a minute later.
func TestDeciderFails(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	d := &decider{since: begin}
	var tried []int
	for s := 1; s < 200; s++ {
		now := begin.Add(time.Duration(s) * time.Second)
		if d.decide(now, decisive) {
			tried = append(tried, s)
			d.failed(now)
		}
	}
	if len(tried) != 4 || tried[0] != 2 || tried[1] != 62 {
		t.Errorf("it tried at %v", tried)
	}
}
