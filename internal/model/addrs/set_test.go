// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

func TestSetPrefixes(t *testing.T) {
	for _, row := range []struct{ entries, want string }{
		{"", ""},
		{"192.0.2.1", "192.0.2.1/32"},
		{"192.0.2.77/24", "192.0.2.0/24"},
		{"192.0.2.0/25 192.0.2.128/25", "192.0.2.0/24"},
		{"192.0.2.1 192.0.2.0/24 192.0.2.9", "192.0.2.0/24"},
		{"192.0.2.3-192.0.2.9", "192.0.2.3/32 192.0.2.4/30 192.0.2.8/31"},
		{"192.0.2.0-192.0.2.5 192.0.2.4-192.0.2.7", "192.0.2.0/29"},
		{"0.0.0.0/0 1.2.3.4", "0.0.0.0/0"},
		{"255.255.255.255 255.255.255.254 0.0.0.0", "0.0.0.0/32 255.255.255.254/31"},
		{"0.0.0.0-255.255.255.255", "0.0.0.0/0"},
		{"2001:db8::/33 2001:db8:8000::/33", "2001:db8::/32"},
		{"2001:db8::1 2001:db8::/64", "2001:db8::/64"},
		{"2001:db8:: 2001:db8::1 2001:db8::2 2001:db8::3", "2001:db8::/126"},
		{"2001:db8::1-2001:db8::4", "2001:db8::1/128 2001:db8::2/127 2001:db8::4/128"},
		{"::/1 8000::/1", "::/0"},
		{"::/0 192.0.2.1", "192.0.2.1/32 ::/0"},
		{"::ffff:192.0.2.1", "::ffff:192.0.2.1/128"},
		{"::ffff:192.0.2.0-::ffff:192.0.2.255", "::ffff:192.0.2.0/120"},
	} {
		set := parse(t, strings.Fields(row.entries)...).set(t)
		var got []string
		for p := range set.Prefixes() {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(row.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", row.entries, diff)
		}
		if set.IsEmpty() != (row.entries == "") {
			t.Errorf("%s: IsEmpty is %v", row.entries, set.IsEmpty())
		}
	}
}

func TestSetPrefixesStops(t *testing.T) {
	n := 0
	for range parse(t, "192.0.2.1", "192.0.2.3", "2001:db8::/32").set(t).Prefixes() {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d prefixes before the break", n)
	}
}

func TestSetContains(t *testing.T) {
	r := testutil.Random(t)
	for _, entries := range []int{0, 1, 2, 3, 5, 8, 13, 50, 200} {
		for range 30 {
			n := randomSets(r, 1, entries)
			set := n[0].set(t)
			addresses := near(n)
			for range 100 {
				addresses = append(addresses, randomAddr(r))
			}
			for _, a := range addresses {
				if got, want := set.Contains(a), n[0].contains(a); got != want {
					t.Fatalf("%v: Contains(%s) is %v", n[0], a, got)
				}
			}
			checkMinimal(t, set)
		}
	}
	if (&Set{}).Contains(netip.Addr{}) {
		t.Error("the invalid address is in a set")
	}
}

// checkMinimal fails if parts of a set are unsorted, overlap, or could be joined.
func checkMinimal(t *testing.T, s *Set) {
	t.Helper()
	for i := 1; i < len(s.v4); i++ {
		if a, b := s.v4[i-1], s.v4[i]; uint64(a.Last)+1 >= uint64(b.First) || a.First > a.Last {
			t.Fatalf("ranges %v and %v", a, b)
		}
	}
	if again := aggregate(slices.Clone(s.v6)); !slices.Equal(again, s.v6) {
		t.Fatalf("prefixes %v are not the fewest, %v", s.v6, again)
	}
	for i := 1; i < len(s.v6); i++ {
		if a, b := s.v6[i-1], s.v6[i]; !a.before(b) || a.covers(b) {
			t.Fatalf("prefixes %v and %v", a, b)
		}
	}
}

// TestSetLarge tests sets that are large enough for the radix sort, with keys that use all digits.
func TestSetLarge(t *testing.T) {
	r := testutil.Random(t)
	const n = 100_000
	var b Builder
	var added []netip.Addr
	for range n {
		v4, v6 := addr4(r.Uint32()), prefix6{r.Uint64() >> r.IntN(64), r.Uint64(), 128}.netip()
		b.AddRange(v4, v4)
		b.Add(v6)
		added = append(added, v4, v6.Addr())
	}
	set := b.Set()
	checkMinimal(t, set)
	in := map[netip.Addr]bool{}
	for _, a := range added {
		in[a] = true
		if !set.Contains(a) {
			t.Fatalf("%s is not in the set", a)
		}
	}
	for _, a := range added {
		if a = a.Next(); a.IsValid() && set.Contains(a) != in[a] {
			t.Fatalf("%s: Contains is %v", a, set.Contains(a))
		}
	}
}

func TestBuilderErrors(t *testing.T) {
	addr := func(s string) netip.Addr {
		a, _ := netip.ParseAddr(s)
		return a
	}
	for _, row := range []struct{ first, last, want string }{
		{"192.0.2.2", "192.0.2.1", "range 192.0.2.2-192.0.2.1 ends before it begins, swap the ends"},
		{"192.0.2.2", "2001:db8::", "the ends of range 192.0.2.2-2001:db8:: are of different families"},
		{"192.0.2.2", "::ffff:192.0.2.9", "the ends of range 192.0.2.2-::ffff:192.0.2.9 are of different families"},
		{"192.0.2.2", "", "adding a range with an invalid end"},
		{"fe80::1%eth1", "fe80::2%eth1", "an address of a range has a zone, leave it out"},
	} {
		var b Builder
		err := b.AddRange(addr(row.first), addr(row.last))
		if err == nil || err.Error() != row.want {
			t.Errorf("%s-%s: got %v, want %s", row.first, row.last, err, row.want)
		}
		if b.Entries() != 0 || !b.Set().IsEmpty() {
			t.Errorf("%s-%s: something was added", row.first, row.last)
		}
	}
	if err := new(Builder).Add(netip.Prefix{}); err == nil {
		t.Error("the invalid prefix was added")
	}
}
