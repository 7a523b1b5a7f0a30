// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestLife loads a generation, replaces it, starts a trial, confirms, rolls back and removes. Packets show the effect of each change.
func TestLife(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		before := b.ruleset()
		b.want("at first", "none")
		b.states("at first", "1 absent")
		b.must(b.load(ctx, 1, 0, 0))
		b.want("loaded", "odd")
		b.states("loaded", "1 settled")
		counts, err := b.Counters(ctx, b.name(1))
		b.must(err)
		if got := counts["dropped"]; got.Packets != 80 || got.Bytes != 40*28+40*48 {
			t.Errorf("counted %+v", counts)
		}
		b.must(b.load(ctx, 2, 1, 0))
		b.want("replaced", "even")
		b.states("replaced", "1 absent, 2 settled")

		b.must(b.load(ctx, 3, 2, time.Minute))
		b.want("on trial", "odd")
		b.states("on trial", "2 aside, 3 on trial")
		if left, _, _ := b.Trial(ctx, b.name(3)); left < 50*time.Second || left > time.Minute {
			t.Errorf("%v are left of a minute", left)
		}
		b.must(b.Confirm(ctx, b.name(3), b.name(2)))
		b.want("confirmed", "odd")
		b.states("confirmed", "2 absent, 3 settled")

		b.must(b.load(ctx, 4, 3, time.Minute))
		b.want("on trial again", "even")
		var state *StateError
		if err := b.load(ctx, 5, 4, 0); !errors.As(err, &state) || state.State != OnTrial {
			t.Errorf("loaded over a trial: %v", err)
		}
		b.must(b.Rollback(ctx, b.name(4), b.name(3)))
		b.want("rolled back", "odd")
		b.states("rolled back", "3 settled, 4 absent")
		b.must(b.Remove(ctx, b.name(3)))
		b.must(b.Remove(ctx, b.name(3)))
		b.want("removed", "none")
		if diff := cmp.Diff(before, b.ruleset()); diff != "" {
			t.Errorf("the kernel is not as before (-want +got):\n%s", diff)
		}
	})
}

// TestExpiry lets a trial expire while packets come in. No packet that both generations drop may pass, and no packet that both pass may be lost.
func TestExpiry(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.must(b.load(ctx, 1, 0, 0))
		b.expire(3 * time.Second)
		b.states("expired", "1 returned, 2 inert")
		var expired *ExpiredError
		if err := b.Confirm(ctx, b.name(2), b.name(1)); !errors.As(err, &expired) {
			t.Errorf("confirmed too late: %v", err)
		}
		b.want("confirmed too late", "odd")
		b.must(b.Rollback(ctx, b.name(2), b.name(1)))
		b.want("settled", "odd")
		b.states("settled", "1 settled, 2 absent")
	})
}

// expire puts generation 2 on trial in place of 1, and waits until 1 decides again. For a moment both decide. If the machine was too busy for the
// test to see that, expire starts a longer trial.
func (b *bench) expire(trial time.Duration) {
	b.Helper()
	for ; ; trial *= 2 {
		b.must(b.load(b.Context(), 2, 1, trial))
		stop := b.traffic()
		var seen []string
		for end := time.Now().Add(trial + time.Minute); !slices.Contains(seen, "odd") && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if who := b.decides(); who != "changing" && !slices.Contains(seen, who) {
				seen = append(seen, who)
			}
		}
		stop()
		b.want("expired", "odd")
		order := []string{"even", "both", "odd"}
		if slices.Equal(seen, order) {
			return
		}
		if missed := slices.DeleteFunc(slices.Clone(order), func(who string) bool { return !slices.Contains(seen, who) }); !slices.Equal(seen, missed) ||
			trial > time.Minute {
			b.Fatalf("a trial of %v: seen to decide: %v", trial, seen)
		}
		b.must(b.Rollback(b.Context(), b.name(2), b.name(1)))
	}
}

// TestBeside lets two generations decide until the new one replaces the old one, on trial or permanently.
func TestBeside(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.must(b.load(ctx, 1, 0, 0))
		for trial := 5 * time.Second; ; trial *= 2 {
			began := time.Now()
			b.must(b.beside(ctx, 2, 1, 2*trial))
			beside := b.decides()
			stop := b.traffic()
			err := succeed(ctx, b, b.name(2), b.name(1), trial)
			over := time.Now().Add(trial)
			const want = "1 aside, 2 on trial"
			succeeded, states := b.decides(), b.statesOf(want)
			if time.Since(began) >= trial && trial < time.Minute { // the machine is too busy to check in time
				stop()
				b.must(b.Rollback(ctx, b.name(2), b.name(1)))
				continue
			}
			if b.must(err); beside != "both" || succeeded != "even" || states != want {
				t.Errorf("beside, %s decides; succeeded, %s decides: %s", beside, succeeded, states)
			}
			time.Sleep(time.Until(over) + ticks)
			b.want("expired", "odd")
			stop()
			b.must(b.Rollback(ctx, b.name(2), b.name(1)))
			break
		}

		b.must(b.beside(ctx, 2, 1, 10*time.Second))
		b.must(b.Confirm(ctx, b.name(2), b.name(1)))
		b.want("confirmed", "even")
		b.states("confirmed", "1 absent, 2 settled")

		b.must(b.beside(ctx, 3, 2, 2*time.Second))
		time.Sleep(2*time.Second + ticks)
		b.want("never succeeded", "even")
		b.must(b.Rollback(ctx, b.name(3), b.name(2)))
		b.states("rolled back", "2 settled, 3 absent")
	})
}

// TestFirstTrial runs a trial of the first generation.
func TestFirstTrial(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		if who := b.firstTrial(b.decides); who != "odd" {
			t.Errorf("on trial: %s decides, want odd", who)
		}
		b.want("expired", "none")
		b.must(b.Rollback(ctx, b.name(1), ""))
		b.must(b.load(ctx, 1, 0, time.Minute))
		b.must(b.Confirm(ctx, b.name(1), ""))
		b.want("confirmed", "odd")
		b.states("confirmed", "1 settled")
	})
}

// ticks is the time of some ticks of the kernel's clock, which are at most 10 ms each. Elements expire at a tick.
const ticks = 50 * time.Millisecond

// firstTrial puts generation 1 on trial, without an earlier generation. After the end of the trial, it returns the result of look during the trial.
// If the machine is too busy for look to run in time, it starts a longer trial.
func (b *bench) firstTrial(look func() string) string {
	b.Helper()
	for trial := 2 * time.Second; ; trial *= 2 {
		began := time.Now()
		b.must(b.load(b.Context(), 1, 0, trial))
		over := time.Now().Add(trial)
		if seen := look(); time.Since(began) < trial || trial > time.Minute {
			time.Sleep(time.Until(over) + ticks)
			return seen
		}
		b.must(b.Rollback(b.Context(), b.name(1), ""))
	}
}

// TestSwaps changes between generations in all possible ways, while packets come in that both drop or that both pass.
func TestSwaps(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		b.must(b.load(ctx, 1, 0, 0))
		stop := b.traffic()
		swaps := testutil.Scaled(5, 50)
		now := 1
		for i := range swaps {
			next := now + 1
			trial := time.Duration(i%3) * time.Minute
			b.must(b.load(ctx, next, now, trial))
			switch i % 3 {
			case 1:
				b.must(b.Rollback(ctx, b.name(next), b.name(now)))
				continue
			case 2:
				b.must(b.Confirm(ctx, b.name(next), b.name(now)))
			}
			now = next
		}
		stop()
	})
}

// TestForward sends packets that the host forwards through the forward chain of an inert table, whose verdict is drop.
func TestForward(t *testing.T) {
	on(t, []string{"nft"}, func(t *testing.T, b *bench) {
		g := b.generations.(nftGenerations)
		testutil.Veth(t, "fw2", "fw3", "10.0.2.1/24")
		shell(t, "ip neigh add 10.0.2.9 lladdr 02:00:00:00:00:09 dev fw2")
		b.must(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
		pipe(t, "nft -f -", `table inet beyond {
	counter p { }
	chain out { type filter hook postrouting priority 1000; oifname "fw2" udp dport 5 counter name p; }
}
`)
		forwarded := func() string {
			before, err := g.Counters(t.Context(), "beyond")
			b.must(err)
			b.sent(func() { b.must(testutil.Send("fw1", "udp 10.0.0.2:5 > 10.0.2.9:5", 10)) })
			after, err := g.Counters(t.Context(), "beyond")
			b.must(err)
			return fmt.Sprint(after["p"].Packets - before["p"].Packets)
		}
		got := []string{forwarded(), b.firstTrial(forwarded), forwarded()}
		if want := []string{"10", "0", "10"}; !slices.Equal(got, want) {
			t.Errorf("before a trial, on trial, and when it is over, %q packets were forwarded, want %q", got, want)
		}
	})
}
