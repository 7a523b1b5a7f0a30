// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

func (b *bench) insert(set string, e ...Element) error {
	return b.elementsOf(set, func(n nftGenerations, name string) error { return n.Insert(b.Context(), "floodwall-1", name, e) },
		func(x iptablesGenerations, name string) error { return x.Insert(b.Context(), name, e) })
}

func (b *bench) delete(set string, list ...netip.Prefix) error {
	return b.elementsOf(set, func(n nftGenerations, name string) error { return n.Delete(b.Context(), "floodwall-1", name, list) },
		func(x iptablesGenerations, name string) error { return x.Delete(b.Context(), name, list) })
}

func (b *bench) elementsOf(set string, nft func(nftGenerations, string) error, iptables func(iptablesGenerations, string) error) error {
	switch g := b.generations.(type) {
	case nftGenerations:
		return nft(g, set)
	case iptablesGenerations:
		return iptables(g, "floodwall-1-"+set)
	}
	return nil
}

// holds lists a set, one element a line. It rounds times up to a multiple of 100 seconds.
func (b *bench) holds(set string) string {
	b.Helper()
	var list []Element
	b.must(b.elementsOf(set, func(n nftGenerations, name string) (err error) {
		list, err = n.Elements(b.Context(), "floodwall-1", name)
		return err
	}, func(x iptablesGenerations, name string) (err error) {
		list, err = x.Elements(b.Context(), name)
		return err
	}))
	var lines []string
	for _, e := range list {
		const unit = 100 * time.Second
		lines = append(lines, strings.TrimSpace(fmt.Sprint(e.Prefix, " ", (e.Timeout+unit-1)/unit*unit, " ", e.Comment)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func element(prefix string, timeout time.Duration, comment string) Element {
	return Element{Prefix: netip.MustParsePrefix(prefix), Timeout: timeout, Comment: comment}
}

// TestElements inserts, refreshes, lists and deletes entries. It does so once with a kernel that can change an element's timeout, and once as if the
// kernel could not.
func TestElements(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		for _, old := range []bool{false, true} {
			if g, ok := b.generations.(nftGenerations); ok && old {
				g.refreshes = new(bool)
			}
			b.must(b.insert("bans4", element("192.0.2.0/24", 500*time.Second, `say "no"`), element("10.0.0.9/32", 200*time.Second, ""),
				element("0.0.0.0/8", 1e6*time.Hour, "long"), element("192.0.2.0/24", 600*time.Second, `say "no"`)))
			b.wantSet("bans4", "0.0.0.0/8 0s long\n10.0.0.9/32 3m20s\n192.0.2.0/24 10m0s say 'no'")
			b.must(b.insert("bans4", element("10.0.0.9/32", 900*time.Second, ""), element("192.0.2.0/24", 300*time.Second, `say "no"`)))
			b.wantSet("bans4", "0.0.0.0/8 0s long\n10.0.0.9/32 15m0s\n192.0.2.0/24 5m0s say 'no'")
			b.must(b.delete("bans4", netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.0/25"),
				netip.MustParsePrefix("0.0.0.0/8")))
			b.wantSet("bans4", "10.0.0.9/32 15m0s")
			b.must(b.delete("bans4", netip.MustParsePrefix("10.0.0.9/32")))
			b.wantSet("bans4", "")
			b.must(b.insert("bans6", element("2001:db8::/32", 0, "six")))
			b.wantSet("bans6", "2001:db8::/32 0s six")
			if b.kind() == "iptables" {
				b.must(b.insert("bans6", element("::/0", 0, "all")))
				b.wantSet("bans6", "2001:db8::/32 0s six\n8000::/1 0s all\n::/1 0s all")
			}
			b.must(b.delete("bans6", netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("::/0")))
			b.wantSet("bans6", "")
		}
	})
}

func (b *bench) wantSet(set, want string) {
	b.Helper()
	if diff := cmp.Diff(want, b.holds(set)); diff != "" {
		b.Errorf("set %s (-want +got):\n%s", set, diff)
	}
}

// TestBan checks that packets match an entry, and do not match it after it has expired.
func TestBan(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		passes := func(when string, want uint64) {
			t.Helper()
			if got := b.sent(func() { b.send(2, 10) })[2]; got != want {
				t.Errorf("%s: %d packets pass, want %d", when, got, want)
			}
		}
		ban := element("10.0.0.0/30", time.Second, "why")
		for b.must(b.insert("bans4", element("10.0.0.128/25", 0, ""))); ; ban.Timeout *= 2 {
			began := time.Now()
			b.must(b.insert("bans4", ban))
			got := b.sent(func() { b.send(2, 10) })[2]
			if time.Since(began) > ban.Timeout && ban.Timeout < time.Minute { // the machine is too busy to check in time
				continue
			}
			if got != 10 {
				t.Errorf("banned: %d packets pass, want 10", got)
			}
			break
		}
		time.Sleep(ban.Timeout)
		passes("expired", 20)
		ban.Timeout = time.Minute
		b.must(b.insert("bans4", ban))
		passes("banned again", 10)
		b.must(b.delete("bans4", ban.Prefix))
		passes("unbanned", 20)
		b.must(b.insert("bans4", ban))
		passes("banned once more", 10)
	})
}

func TestWrongElements(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		wantError(t, b.insert("bans4", element("2001:db8::/64", 0, "")), "2001:db8::/64: not of the family of the set", "")
		wantError(t, b.insert("bans4", element("10.0.0.1/8", 0, "")), "10.0.0.1/8: no prefix, or one with bits behind", "")
		wantError(t, b.insert("bans4", element("10.0.0.0/8", -1, "")), "a timeout below 0", "")
		wantError(t, b.insert("listed", element("10.0.0.1/32", time.Hour, "")), "10.0.0.1/32: the set has no timeouts", "")
		wantError(t, b.insert("none", element("10.0.0.1/32", 0, "")), "none", "")
		b.wantSet("bans4", "")
	})
}

// TestOverlap inserts prefixes that overlap with others, which an nftables set cannot hold.
func TestOverlap(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		b.must(b.insert("bans4", element("10.1.0.0/16", time.Hour, ""), element("10.3.0.0/16", time.Hour, "")))
		err := b.insert("bans4", element("10.0.0.0/8", time.Hour, ""), element("10.3.3.3/32", time.Hour, ""),
			element("10.1.0.0/16", time.Hour, ""), element("192.0.2.0/24", time.Hour, ""), element("192.0.2.7/32", time.Hour, ""))
		if b.kind() == "iptables" {
			b.must(err)
			return
		}
		wantError(t, err, "192.0.2.7/32 overlaps 192.0.2.0/24", "larger prefix")
		for _, want := range []string{"10.0.0.0/8 overlaps 10.1.0.0/16", "10.3.3.3/32 overlaps 10.3.0.0/16"} {
			wantError(t, err, want, "")
		}
		b.wantSet("bans4", "10.1.0.0/16 1h0m0s\n10.3.0.0/16 1h0m0s\n192.0.2.0/24 1h0m0s")
	})
}

// TestMany inserts 100,000 entries, inserts all of them again, and deletes 20,000.
func TestMany(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		r := testutil.Random(t)
		var many []Element
		for i := range testutil.Scaled(10_000, 100_000) {
			a := netip.AddrFrom4([4]byte{byte(1 + i>>14), byte(i >> 6), byte(i << 2), byte(r.IntN(256))})
			many = append(many, Element{Prefix: netip.PrefixFrom(a, 32), Timeout: time.Hour, Comment: "many"})
		}
		many = last(many)
		if b.kind() == "iptables" {
			shell(t, "ipset destroy floodwall")
			many = many[:min(len(many), 60_000)] // a set has space for 65,536 entries by default
		}
		for _, step := range []struct {
			name string
			do   func() error
			want int
		}{
			{"insert", func() error { return b.insert("bans4", many...) }, len(many)},
			{"insert one", func() error { return b.insert("bans4", many[0]) }, len(many)},
			{"refresh", func() error { return b.insert("bans4", many...) }, len(many)},
			{"delete", func() error { return b.delete("bans4", prefixes(many[:5000])...) }, len(many) - 5000},
		} {
			start := time.Now()
			b.must(step.do())
			t.Logf("%s: %v", step.name, time.Since(start))
			if got := strings.Count(b.holds("bans4"), "\n") + 1; got != step.want {
				t.Errorf("%s: %d entries, want %d", step.name, got, step.want)
			}
		}
	})
}

// TestFill loads sets that have entries from the start.
func TestFill(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		list := []Element{element("10.0.0.0/30", time.Hour, "kept")}
		switch g := b.generations.(type) {
		case nftGenerations:
			table := g.table(1)
			table.Fill = map[string][]Element{"bans4": append(list, element("10.0.0.1/32", time.Hour, ""))}
			b.must(g.Load(context.Background(), table, "", 0))
		case iptablesGenerations:
			rules := g.rules(1)
			rules.Fill = map[string][]Element{"floodwall-1-bans4": list}
			b.must(g.Load(context.Background(), rules, "", 0))
		}
		b.wantSet("bans4", "10.0.0.0/30 1h0m0s kept")
	})
}
