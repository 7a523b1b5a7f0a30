// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRollbackKeepsChangesOfBans changes bans of every kind after an apply, and rolls back. Lifted bans must stay lifted, new bans must stay, and
// each ban must have its latest end.
func TestRollbackKeepsChangesOfBans(t *testing.T) {
	for _, w := range ways {
		onEnds(t, w.name, func(e *ends) {
			lift := func(prefixes ...string) {
				for _, p := range prefixes {
					if _, err := e.Unblock(t.Context(), "", []netip.Prefix{netip.MustParsePrefix(p)}); err != nil {
						e.Fatal(err)
					}
				}
			}
			entry := func(prefix string, hours int, origin ban.Origin) ban.Ban {
				return ban.Ban{Prefix: netip.MustParsePrefix(prefix), Until: ban.After(time.Duration(hours) * time.Hour), Origin: origin, Replace: true}
			}
			e.applyTo(w.target, w.policy("old", 1000))
			e.block(someBans()...)
			e.block(entry("192.0.2.20/32", 9, ban.CrowdSec), entry("192.0.2.21/32", 9, ban.CrowdSec), entry("192.0.2.22/32", 9, ban.CrowdSec),
				entry("192.0.2.23/32", 2, ban.Manual), entry("2001:db8:6::/64", 9, ban.Manual))
			e.applyTo(w.target, w.policy("new", 2000))
			lift("192.0.2.7/32", "2001:db8:bad::/48", "192.0.2.20/32", "192.0.2.22/32")
			e.block(entry("192.0.2.21/32", 3, ban.CrowdSec), entry("192.0.2.22/32", 5, ban.Manual), entry("192.0.2.23/32", 7, ban.Manual),
				entry("192.0.2.24/32", 4, ban.CrowdSec), entry("2001:db8:6::/64", 6, ban.Manual), entry("2001:db8:7::7/128", 8, ban.Manual))
			want := []string{
				"192.0.2.21/32 bans 3h", "192.0.2.22/32 bans 5h", "192.0.2.23/32 bans 7h", "192.0.2.24/32 bans 4h", "192.0.2.128/25 bans forever",
				"2001:db8:6::/64 bans 6h", "2001:db8:7::7/128 bans 8h", "2001:db8:9::9/128 bans forever",
			}
			e.wantBlocked("before the rollback", want)
			for _, when := range []string{"after the rollback", "after one more"} {
				if _, err := e.Rollback(t.Context()); err != nil {
					e.Fatal(err)
				}
				e.wantBlocked(when, want)
				if !e.passes(7, 3000) || !e.passes(20, 3000) || e.passes(21, 3000) || e.passes(22, 3000) || e.passes(24, 3000) || e.passes(200, 3000) {
					e.Errorf("%s the list is not in force", when)
				}
			}
		})
	}
}

// TestRollbackToSmallerSet rolls back to a policy whose set has too little space. The entries of programs that end first must be evicted. If the
// entries of people do not fit, the rollback must fail, and the present policy must stay with all its entries.
func TestRollbackToSmallerSet(t *testing.T) {
	for _, w := range ways {
		onEnds(t, w.name, func(e *ends) {
			e.applyTo(w.target, banPolicy(4, "bans"))
			e.applyTo(w.target, banPolicy(100, "bans"))
			var bans []ban.Ban
			for i := range 6 {
				b := ban.Ban{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(50 + i)}), 32), Until: ban.After(time.Duration(i+1) * time.Hour)}
				if i >= 3 {
					b.Origin = ban.CrowdSec
				}
				bans = append(bans, b)
			}
			e.block(bans...)
			if _, err := e.Rollback(t.Context()); err != nil {
				e.Fatal(err)
			}
			e.wantBlocked("in less space", []string{"192.0.2.50/32 bans 1h", "192.0.2.51/32 bans 2h", "192.0.2.52/32 bans 3h", "192.0.2.55/32 bans 6h"})
			if _, err := e.Rollback(t.Context()); err != nil {
				e.Fatal(err)
			}
			var more []string
			for i := range 5 {
				e.block(ban.Ban{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(60 + i)}), 32), Until: ban.After(2 * time.Hour)})
				more = append(more, fmt.Sprintf("192.0.2.%d/32 bans 2h", 60+i))
			}
			all := e.blocked()
			var refused *control.PreviousError
			if _, err := e.Rollback(t.Context()); !errors.As(err, &refused) {
				e.Errorf("a rollback without space for bans of people: %v", err)
			}
			e.wantBlocked("after a rollback that was refused", all)
			if !slices.Equal(all[len(all)-5:], more) || e.passes(64, 3000) {
				e.Error("bans are lost")
			}
		})
	}
}

// TestRollbackBesideBans blocks and unblocks addresses without a pause while two policies replace each other in turn. The last command for each
// address must be in force.
func TestRollbackBesideBans(t *testing.T) {
	const hosts = 8
	for _, w := range ways {
		onEnds(t, w.name, func(e *ends) {
			e.applyTo(w.target, w.policy("old", 1000))
			e.applyTo(w.target, w.policy("new", 2000))
			ctx, cancel := context.WithCancel(t.Context())
			var wait sync.WaitGroup
			in := make([][hosts]bool, 2)
			for b := range in {
				wait.Go(func() {
					for i := b; ctx.Err() == nil; i++ {
						at := i % hosts
						p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + b*hosts + at)}), 32)
						var err error
						if in[b][at] {
							_, err = e.Unblock(t.Context(), "", []netip.Prefix{p})
						} else {
							_, err = e.Block(t.Context(), "", []ban.Ban{{Prefix: p}})
						}
						if err != nil {
							e.Errorf("%s: %v", p, err)
							return
						}
						in[b][at] = !in[b][at]
					}
				})
			}
			for range testutil.Scaled(6, 60) {
				time.Sleep(100 * time.Millisecond)
				if _, err := e.Rollback(t.Context()); err != nil {
					e.Error(err)
				}
			}
			cancel()
			wait.Wait()
			var want []string
			for b := range in {
				for at, is := range in[b] {
					if is {
						want = append(want, fmt.Sprintf("192.0.2.%d/32 bans 1h", 100+b*hosts+at))
					}
				}
			}
			e.wantBlocked("after the last", want)
		})
	}
}
