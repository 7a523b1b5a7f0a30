// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// someBans are entries of all kinds: addresses and prefixes of both families, with the set's timeout, with another timeout and without a timeout.
func someBans() []ban.Ban {
	return []ban.Ban{
		{Prefix: netip.MustParsePrefix("192.0.2.7/32"), Why: "guessing"},
		{Prefix: netip.MustParsePrefix("192.0.2.128/25"), Until: ban.Never},
		{Prefix: netip.MustParsePrefix("2001:db8:bad::/48"), Until: ban.After(48 * time.Hour), Why: "64 bytes, and more"},
		{Prefix: netip.MustParsePrefix("2001:db8:9::9/128"), Until: ban.Never},
	}
}

// someBlocked is the expected result of blocked for someBans.
var someBlocked = []string{
	"192.0.2.7/32 bans 1h guessing", "192.0.2.128/25 bans forever", "2001:db8:9::9/128 bans forever",
	"2001:db8:bad::/48 bans 48h 64 bytes, and more",
}

// blocked lists the entries of all sets, each with the remaining time in hours.
func (h *host) blocked() (list []string) {
	h.Helper()
	entries, err := h.Blocked(context.Background(), "")
	if err != nil {
		h.Fatal(err)
	}
	for _, b := range entries {
		left := "forever"
		if b.Until != ban.Never {
			left = fmt.Sprintf("%.0fh", time.Until(b.Until).Hours())
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", b.Prefix, b.Set, left, b.Why)))
	}
	return list
}

func (h *host) wantBlocked(when string, want []string) {
	h.Helper()
	if diff := cmp.Diff(want, h.blocked()); diff != "" {
		h.Errorf("blocked %s (-want +got):\n%s", when, diff)
	}
}

// TestBansOfEachWay blocks, lists and unblocks prefixes on each target.
func TestBansOfEachWay(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	for _, w := range ways {
		t.Log(w.name)
		if _, err := e.try(strings.ReplaceAll(w.policy("old", 1000), "max: 1000", "max: 8"), control.ApplyOptions{Target: w.target}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(control.Fill{Set: "bans", Changed: []int{0, 1, 2, 3}, Entries: 4, Capacity: 8}, e.block(someBans()...)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", w.name, diff)
		}
		e.wantBlocked("after the first ban", someBlocked)
		if e.passes(7, 2000) || e.passes(200, 2000) || !e.passes(9, 2000) {
			t.Errorf("%s: packets of banned and other sources get through: %t, %t, %t", w.name, e.passes(7, 2000), e.passes(200, 2000), e.passes(9, 2000))
		}

		// Ban the same prefix again: the entry must get the new end. A short ban must end by itself.
		e.block(ban.Ban{Prefix: netip.MustParsePrefix("192.0.2.7/32"), Until: ban.After(5 * time.Hour), Why: "again"})
		const short = time.Second
		began := time.Now()
		e.block(ban.Ban{Prefix: netip.MustParsePrefix("192.0.2.10/32"), Until: ban.After(short)})
		then := e.blocked()
		inTime := time.Since(began) < short // otherwise the machine is busy, and the entry may have ended
		again := slices.Clone(someBlocked)
		again[0] = "192.0.2.7/32 bans 5h again"
		if w.target == plan.TargetNftables {
			again[0] = "192.0.2.7/32 bans 5h guessing" // an element of nftables keeps its comment
		}
		if diff := cmp.Diff(slices.Insert(slices.Clone(again), 1, "192.0.2.10/32 bans 0h"), then); inTime && diff != "" {
			t.Errorf("%s: blocked after a second ban (-want +got):\n%s", w.name, diff)
		}
		testutil.Eventually(time.Minute, func() bool { return slices.Equal(e.blocked(), again) })
		e.wantBlocked("when one has ended", again)

		// Four more bans fit, and a fifth does not.
		var more []ban.Ban
		for i := range 5 {
			more = append(more, ban.Ban{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32)})
		}
		fill, err := e.Block(t.Context(), "bans", more)
		var refused ban.Refusals
		if !errors.As(err, &refused) || len(refused) != 1 || refused[0].Index != 4 || fill.Entries != 8 || !strings.Contains(err.Error(), `set "bans" is full`) {
			t.Errorf("%s: blocking more than fit: %+v, %v", w.name, fill, err)
		}

		gone := []netip.Prefix{
			netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("192.0.2.200/32"), netip.MustParsePrefix("192.0.2.128/25"),
			netip.MustParsePrefix("203.0.113.1/32"),
		}
		fill, err = e.Unblock(t.Context(), "bans", gone)
		if !errors.As(err, &refused) || len(refused) != 2 || refused[0].Index != 1 || refused[1].Index != 3 || len(fill.Changed) != 2 {
			t.Errorf("%s: unblocking: %+v, %v", w.name, fill, err)
		}
		if !e.passes(7, 2000) || !e.passes(200, 2000) {
			t.Errorf("%s: packets of sources that were unblocked do not get through", w.name)
		}
		e.clear()
	}
}

// TestBanWaits makes a ban wait 3 s for a command that changes something else. The ban must still end at the time that was set.
func TestBanWaits(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	for _, w := range ways {
		if _, err := e.try(w.policy("old", 1000), control.ApplyOptions{Target: w.target}); err != nil {
			t.Fatal(err)
		}
		state, err := datapath.OpenState(e.Dir, false)
		if err != nil {
			t.Fatal(err)
		}
		unlock, err := state.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(time.Hour)
		time.AfterFunc(3*time.Second, unlock)
		e.block(ban.Ban{Prefix: netip.MustParsePrefix("192.0.2.7/32"), Until: until, Origin: ban.Fleet})
		list, err := e.Blocked(t.Context(), "")
		if err != nil || len(list) != 1 || list[0].Until == ban.Never {
			t.Fatalf("%s: %v, %v", w.name, list, err)
		}
		if late := list[0].Until.Sub(until); late > 1500*time.Millisecond {
			t.Errorf("%s: the ban ends %v late", w.name, late)
		}
		e.clear()
	}
}

// TestRefusedEvictsNone makes a program ban a prefix that nftables cannot hold. No entry of another program may be evicted for this prefix.
func TestRefusedEvictsNone(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.applyTo(plan.TargetNftables, banPolicy(4, "bans"))
	for i, p := range []string{"198.51.100.1/32", "198.51.100.2/32", "203.0.113.0/25"} { // as many entries as programs may have
		h.block(ban.Ban{Prefix: netip.MustParsePrefix(p), Until: ban.After(time.Duration(i+1) * time.Hour), Origin: ban.CrowdSec})
	}
	_, err := h.Block(t.Context(), "", []ban.Ban{{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Until: ban.After(9 * time.Hour), Origin: ban.CrowdSec}})
	var refused ban.Refusals
	if !errors.As(err, &refused) || len(refused) != 1 {
		t.Errorf("a prefix around another: %v", err)
	}
	h.wantBlocked("after a refusal", []string{"198.51.100.1/32 bans 1h", "198.51.100.2/32 bans 2h", "203.0.113.0/25 bans 3h"})
}

// TestBansAcross changes from each target to each other target, and back, while there are bans.
func TestBansAcross(t *testing.T) {
	forWays(t, func(e *ends, _ int, from, to way) {
		t := e.T
		if from == noWay {
			return
		}
		if _, err := e.try(from.policy("old", 1000), control.ApplyOptions{Target: from.target}); err != nil {
			t.Fatal(err)
		}
		e.block(someBans()...)
		applied, err := e.try(to.policy("new", 2000), control.ApplyOptions{Target: to.target, Confirm: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if applied.Bans != 4 {
			t.Errorf("%d bans were kept", applied.Bans)
		}
		e.wantBlocked("after the change", someBlocked)

		// A ban, and the lifting of a ban, during the trial must also apply to the policy that returns.
		e.block(ban.Ban{Prefix: netip.MustParsePrefix("192.0.2.11/32")})
		if _, err := e.Unblock(t.Context(), "", []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}); err != nil {
			t.Error(err)
		}
		want := slices.Clone(someBlocked)
		want[0] = "192.0.2.11/32 bans 1h"
		e.wantBlocked("during the trial", want)
		if _, err := e.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.wantBlocked("after the rollback", want)
		if e.passes(11, 2000) || e.passes(200, 2000) || !e.passes(7, 2000) {
			t.Error("the bans have no effect")
		}
		if from.target != to.target {
			return
		}
		if _, err := e.try(to.policy("new", 2000), control.ApplyOptions{Target: to.target}); err != nil {
			t.Fatal(err)
		}
		e.block(ban.Ban{Prefix: netip.MustParsePrefix("192.0.2.12/32")})
		if _, err := e.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.wantBlocked("after the rollback of a confirmed policy", slices.Insert(want, 1, "192.0.2.12/32 bans 1h"))
		if e.passes(12, 2000) {
			t.Error("the ban from before the rollback has no effect")
		}
	})
}

// TestManyBans blocks 100,000 addresses on each target, in batches of the size that the command uses.
func TestManyBans(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	const piece = 5000
	n := testutil.Scaled(10_000, 100_000)
	for _, w := range ways {
		policy := strings.ReplaceAll(w.policy("old", 1000), "max: 1000", fmt.Sprintf("max: %d", n))
		if _, err := e.try(policy, control.ApplyOptions{Target: w.target}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for at := 0; at < n; at += piece {
			var bans []ban.Ban
			for i := at; i < at+piece; i++ {
				bans = append(bans, ban.Ban{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)})
			}
			if fill := e.block(bans...); fill.Entries != at+piece {
				t.Fatalf("%s: %+v", w.name, fill)
			}
		}
		took := time.Since(start)
		start = time.Now()
		if applied, err := e.try(policy, control.ApplyOptions{Target: w.target}); err != nil || applied.Bans != n {
			t.Fatalf("%s: applying again: %+v, %v", w.name, applied, err)
		}
		t.Logf("%s: %d bans in %.1f s, applied again in %.1f s", w.name, n, took.Seconds(), time.Since(start).Seconds())
		e.clear()
	}
}
