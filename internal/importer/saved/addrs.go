// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Family is a set of address families, one bit for each.
type Family uint8

const (
	IPv4 Family = 1 << iota
	IPv6
)

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// AddrSet contains the addresses that are in any of its parts.
type AddrSet struct {
	Ranges []netipx.IPRange // sorted, disjoint, not adjacent, when there is more than one
	Sets   []*Set
	Local  bool // the host's own addresses
}

func (a *AddrSet) empty() bool { return len(a.Ranges) == 0 && len(a.Sets) == 0 && !a.Local }

// Plain reports whether a consists of ranges only.
func (a *AddrSet) Plain() bool { return len(a.Sets) == 0 && !a.Local }

// ipset returns ranges as a set for set operations.
func ipset(ranges []netipx.IPRange) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(r)
	}
	s, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{} // only an invalid range causes an error, and there is no invalid range
	}
	return s
}

// Join returns the union of ranges, in the form that AddrSet requires.
func Join(ranges []netipx.IPRange) []netipx.IPRange {
	if len(ranges) < 2 {
		return ranges
	}
	return ipset(ranges).Ranges()
}

// Or returns the union of a and b, neither of which may be nil.
func (a *AddrSet) Or(b *AddrSet) *AddrSet {
	u := &AddrSet{Ranges: Join(slices.Concat(a.Ranges, b.Ranges)), Sets: slices.Clone(a.Sets), Local: a.Local || b.Local}
	for _, s := range b.Sets {
		if !slices.Contains(u.Sets, s) {
			u.Sets = append(u.Sets, s)
		}
	}
	return u
}

// covers reports whether each part of b is covered by a part of a.
func (a *AddrSet) covers(b *AddrSet) bool {
	for _, s := range b.Sets {
		if !slices.Contains(a.Sets, s) {
			return false
		}
	}
	return (a.Local || !b.Local) && slices.Equal(Common(a.Ranges, b.Ranges), Join(b.Ranges))
}

// equal reports whether a and b have the same parts; either may be nil.
func (a *AddrSet) equal(b *AddrSet) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Local == b.Local && slices.Equal(a.Ranges, b.Ranges) && slices.Equal(a.Sets, b.Sets)
}

// minus removes from a the ranges, sets and own addresses that are parts of b. It does not compare the contents of sets.
func (a *AddrSet) minus(b *AddrSet) *AddrSet {
	var build netipx.IPSetBuilder
	for _, r := range a.Ranges {
		build.AddRange(r)
	}
	for _, r := range b.Ranges {
		build.RemoveRange(r)
	}
	left, err := build.IPSet()
	if err != nil {
		return a
	}
	m := &AddrSet{Ranges: left.Ranges(), Local: a.Local && !b.Local}
	for _, s := range a.Sets {
		if !slices.Contains(b.Sets, s) {
			m.Sets = append(m.Sets, s)
		}
	}
	return m
}

// outside returns all addresses of both families that are in none of the ranges.
func outside(ranges []netipx.IPRange) []netipx.IPRange {
	var b netipx.IPSetBuilder
	for _, p := range everything {
		b.AddPrefix(p)
	}
	for _, r := range ranges {
		b.RemoveRange(r)
	}
	s, err := b.IPSet()
	if err != nil {
		return nil
	}
	return s.Ranges()
}

var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// Common returns the addresses that are in both a and b.
func Common(a, b []netipx.IPRange) []netipx.IPRange {
	var build netipx.IPSetBuilder
	for _, r := range a {
		build.AddRange(r)
	}
	build.Intersect(ipset(b))
	s, err := build.IPSet()
	if err != nil {
		return nil
	}
	return s.Ranges()
}

// HereBound contains destination addresses of packets to this host that are not the address of a single host. The last one is the address of all
// routers of a link, which a forwarding host also has (RFC 4291, 2.6.1; kernel addrconf_join_anycast).
var HereBound = Join(append(slices.Clone(multicast), netipx.RangeOfPrefix(netip.MustParsePrefix("255.255.255.255/32")),
	netipx.RangeOfPrefix(netip.MustParsePrefix("fe80::/128"))))
