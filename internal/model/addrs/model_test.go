// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"go4.org/netipx"
)

// naive is a set as a plain list of its entries.
type naive []netipx.IPRange

func (n naive) contains(a netip.Addr) bool {
	for _, r := range n {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

func (n naive) set(t testing.TB) *Set {
	t.Helper()
	var b Builder
	for _, r := range n {
		var err error
		if p, ok := r.Prefix(); ok {
			err = b.Add(p)
		} else {
			err = b.AddRange(r.From(), r.To())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if b.Entries() != len(n) {
		t.Fatalf("%d entries counted, added %d", b.Entries(), len(n))
	}
	return b.Set()
}

// parse returns a set of entries, which are given in the notation of list files.
func parse(t testing.TB, entries ...string) naive {
	t.Helper()
	var n naive
	for _, text := range entries {
		if p, err := netip.ParsePrefix(text); err == nil {
			n = append(n, netipx.RangeOfPrefix(p))
		} else if a, err := netip.ParseAddr(text); err == nil {
			n = append(n, netipx.IPRangeFrom(a, a))
		} else {
			n = append(n, netipx.MustParseIPRange(text))
		}
	}
	return n
}

// near returns the addresses at which membership may change: the ends of all entries and the addresses next to them.
func near(sets []naive) []netip.Addr {
	out := []netip.Addr{
		netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("255.255.255.255"),
		netip.MustParseAddr("::"), netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
	}
	for _, n := range sets {
		for _, r := range n {
			for _, a := range []netip.Addr{r.From().Prev(), r.From(), r.To(), r.To().Next()} {
				if a.IsValid() {
					out = append(out, a)
				}
			}
		}
	}
	return out
}

// randomAddr returns an address from a small part of the IPv4 or IPv6 space, so that random entries overlap, touch
// and nest.
func randomAddr(r *rand.Rand) netip.Addr {
	host := r.Uint32() >> r.IntN(32)
	if r.IntN(2) == 0 {
		return addr4(0xc0000000 ^ host)
	}
	b := netip.MustParseAddr("2001:db8::").As16()
	for shift := range 4 {
		b[[]int{3, 6, 8, 15}[shift]] ^= byte(host >> (8 * shift))
	}
	return netip.AddrFrom16(b)
}

// randomEntry returns a prefix of any length, most often a long one, or a range.
func randomEntry(r *rand.Rand) netipx.IPRange {
	a := randomAddr(r)
	if r.IntN(5) > 0 {
		bits := a.BitLen() - r.IntN(a.BitLen()+1)*r.IntN(a.BitLen()+1)/a.BitLen()
		return netipx.RangeOfPrefix(netip.PrefixFrom(a, bits).Masked())
	}
	b := randomAddr(r)
	for b.Is4() != a.Is4() {
		b = randomAddr(r)
	}
	if b.Less(a) {
		a, b = b, a
	}
	return netipx.IPRangeFrom(a, b)
}

// randomSets returns random sets. Some of them have entries in common.
func randomSets(r *rand.Rand, sets, entries int) []naive {
	out := make([]naive, sets)
	for range entries {
		e := randomEntry(r)
		for range 1 + r.IntN(2) {
			i := r.IntN(sets)
			out[i] = append(out[i], e)
		}
	}
	return out
}
