// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"sort"

	"go4.org/netipx"
)

// Range is the IPv4 addresses from First to Last, both included, as numbers (192.0.2.1 is 0xc0000201).
type Range struct{ First, Last uint32 }

// IPRange returns the range as addresses.
func (r Range) IPRange() netipx.IPRange { return netipx.IPRangeFrom(addr4(r.First), addr4(r.Last)) }

// Set is an immutable set of addresses. IPv4-mapped IPv6 addresses are IPv6 addresses, not IPv4.
type Set struct {
	v4 []Range   // sorted, disjoint, with a gap between neighbours
	v6 []prefix6 // sorted, disjoint, siblings joined
}

// Contains reports whether the address is in the set. A zone is ignored.
func (s *Set) Contains(a netip.Addr) bool {
	switch {
	case a.Is4():
		return s.contains4(number4(a))
	case a.Is6():
		return s.contains6(prefix6From(a, 128))
	}
	return false
}

func (s *Set) contains4(a uint32) bool {
	i := sort.Search(len(s.v4), func(i int) bool { return s.v4[i].First > a })
	return i > 0 && a <= s.v4[i-1].Last
}

func (s *Set) contains6(a prefix6) bool {
	i := sort.Search(len(s.v6), func(i int) bool { return !s.v6[i].before(a) })
	return i < len(s.v6) && s.v6[i] == a || i > 0 && s.v6[i-1].covers(a)
}

// IsEmpty reports whether no address is in the set.
func (s *Set) IsEmpty() bool { return len(s.v4) == 0 && len(s.v6) == 0 }

// V4 returns the IPv4 part: sorted ranges that neither overlap nor touch. The caller must not change them.
func (s *Set) V4() []Range { return s.v4 }

// Prefixes yields the set as the smallest number of prefixes, IPv4 first, each family in ascending order.
func (s *Set) Prefixes() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		var prefixes []netip.Prefix
		for _, r := range s.v4 {
			prefixes = r.IPRange().AppendPrefixes(prefixes[:0])
			for _, p := range prefixes {
				if !yield(p) {
					return
				}
			}
		}
		for _, p := range s.v6 {
			if !yield(p.netip()) {
				return
			}
		}
	}
}

func number4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func addr4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
