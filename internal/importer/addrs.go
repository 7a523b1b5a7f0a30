package importer

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// family is an address family, by its bit.
type family uint8

const (
	ipv4 family = 1 << iota
	ipv6
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// addrSet is the addresses that are in any of its parts.
type addrSet struct {
	ranges []netipx.IPRange // sorted, disjoint, not adjacent, when there is more than one
	sets   []*set
	local  bool // the host's own addresses
}

func (a *addrSet) empty() bool { return len(a.ranges) == 0 && len(a.sets) == 0 && !a.local }

// plain reports whether a is made of ranges only.
func (a *addrSet) plain() bool { return len(a.sets) == 0 && !a.local }

// ipset is the ranges of a as a set to calculate with.
func ipset(ranges []netipx.IPRange) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, r := range ranges {
		b.AddRange(r)
	}
	s, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{} // only an invalid range makes an error, and there is none
	}
	return s
}

// join is the union of ranges, in the form of addrSet.
func join(ranges []netipx.IPRange) []netipx.IPRange {
	if len(ranges) < 2 {
		return ranges
	}
	return ipset(ranges).Ranges()
}

// or is the union of a and b, neither nil.
func (a *addrSet) or(b *addrSet) *addrSet {
	u := &addrSet{ranges: join(slices.Concat(a.ranges, b.ranges)), sets: slices.Clone(a.sets), local: a.local || b.local}
	for _, s := range b.sets {
		if !slices.Contains(u.sets, s) {
			u.sets = append(u.sets, s)
		}
	}
	return u
}

// covers reports whether each part of b is a part of a.
func (a *addrSet) covers(b *addrSet) bool {
	for _, s := range b.sets {
		if !slices.Contains(a.sets, s) {
			return false
		}
	}
	return (a.local || !b.local) && slices.Equal(common(a.ranges, b.ranges), join(b.ranges))
}

// equal reports whether a and b are written the same; either may be nil.
func (a *addrSet) equal(b *addrSet) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.local == b.local && slices.Equal(a.ranges, b.ranges) && slices.Equal(a.sets, b.sets)
}

// minus is a without the ranges, sets and own addresses that b names as such; a's sets are not looked into.
func (a *addrSet) minus(b *addrSet) *addrSet {
	var build netipx.IPSetBuilder
	for _, r := range a.ranges {
		build.AddRange(r)
	}
	for _, r := range b.ranges {
		build.RemoveRange(r)
	}
	left, err := build.IPSet()
	if err != nil {
		return a
	}
	m := &addrSet{ranges: left.Ranges(), local: a.local && !b.local}
	for _, s := range a.sets {
		if !slices.Contains(b.sets, s) {
			m.sets = append(m.sets, s)
		}
	}
	return m
}

// outside is all addresses of both families that are in none of ranges.
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

// common is what is in a and in b.
func common(a, b []netipx.IPRange) []netipx.IPRange {
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
