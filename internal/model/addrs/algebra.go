// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"slices"
	"sort"
)

// Union returns the addresses that are in any of the sets.
func Union(sets ...*Set) *Set {
	switch len(sets) {
	case 0:
		return &Set{}
	case 1:
		return sets[0]
	}
	all := make([]Builder, len(sets))
	for i, s := range sets {
		all[i] = Builder{v4: s.v4, v6: s.v6}
	}
	b := mergeBuilders(all)
	return b.Set()
}

// Covers reports whether every address of t is in s.
func (s *Set) Covers(t *Set) bool {
	for _, r := range t.v4 {
		i, _ := slices.BinarySearchFunc(s.v4, r.First, func(have Range, first uint32) int {
			if have.Last < first {
				return -1
			}
			return 1
		})
		if i == len(s.v4) || s.v4[i].First > r.First || s.v4[i].Last < r.Last {
			return false
		}
	}
	for _, p := range t.v6 {
		if !s.contains6Prefix(p) {
			return false
		}
	}
	return true
}

// Overlaps reports whether the two sets have an address in common. It does a binary search in the larger set for each range or prefix of the smaller
// set.
func (s *Set) Overlaps(t *Set) bool {
	if s.Size() > t.Size() {
		s, t = t, s
	}
	for _, r := range s.v4 {
		i := sort.Search(len(t.v4), func(i int) bool { return t.v4[i].Last >= r.First })
		if i < len(t.v4) && t.v4[i].First <= r.Last {
			return true
		}
	}
	for _, p := range s.v6 {
		i := sort.Search(len(t.v6), func(i int) bool { return !t.v6[i].before(p) })
		if i < len(t.v6) && (t.v6[i] == p || p.covers(t.v6[i])) || i > 0 && t.v6[i-1].covers(p) {
			return true
		}
	}
	return false
}

// contains6Prefix reports whether a prefix of s covers p. A test of single prefixes is enough: sibling prefixes are always joined in a set, so
// several smaller prefixes can never cover p together.
func (s *Set) contains6Prefix(p prefix6) bool {
	i, found := slices.BinarySearchFunc(s.v6, p, func(have, want prefix6) int {
		switch {
		case have == want:
			return 0
		case have.before(want):
			return -1
		}
		return 1
	})
	return found || i > 0 && s.v6[i-1].covers(p)
}

// Size returns the number of IPv4 ranges and IPv6 prefixes in the set.
func (s *Set) Size() int { return len(s.v4) + len(s.v6) }

// String returns the first few prefixes of the set in the policy's notation.
func (s *Set) String() string {
	const most = 8
	text := ""
	n := 0
	for p := range s.Prefixes() {
		if n++; n > most {
			return text + ", …"
		}
		if text != "" {
			text += ", "
		}
		text += PrefixText(p)
	}
	return text
}

// Without returns the addresses of s that are not in t.
func (s *Set) Without(t *Set) *Set {
	if !s.Overlaps(t) {
		return s
	}
	out := &Set{v4: without4(s.v4, t.v4)}
	for _, p := range s.v6 {
		out.v6 = appendWithout6(out.v6, p, t)
	}
	out.v6 = aggregate(out.v6)
	return out
}

// Both returns the addresses that are in s and in t.
func (s *Set) Both(t *Set) *Set { return s.Without(s.Without(t)) }

// without4 removes the ranges in cut from ranges. Both lists are sorted and disjoint.
func without4(ranges, cut []Range) (out []Range) {
	at := 0
	for _, r := range ranges {
		for at < len(cut) && cut[at].Last < r.First {
			at++
		}
		first, whole := r.First, false
		for i := at; i < len(cut) && cut[i].First <= r.Last; i++ {
			if cut[i].First > first {
				out = append(out, Range{first, cut[i].First - 1})
			}
			if whole = cut[i].Last >= r.Last; whole {
				break
			}
			first = cut[i].Last + 1
		}
		if !whole {
			out = append(out, Range{first, r.Last})
		}
	}
	return out
}

// appendWithout6 appends the part of prefix p that is not in t, in ascending order. If t contains only a part of p, p is halved repeatedly, until
// each half is either completely in t or completely outside it.
func appendWithout6(list []prefix6, p prefix6, t *Set) []prefix6 {
	switch {
	case t.contains6Prefix(p):
		return list
	case !t.overlaps6(p):
		return append(list, p)
	}
	lower, upper := p.halves()
	return appendWithout6(appendWithout6(list, lower, t), upper, t)
}

func (s *Set) overlaps6(p prefix6) bool {
	return (&Set{v6: []prefix6{p}}).Overlaps(&Set{v6: s.v6})
}
