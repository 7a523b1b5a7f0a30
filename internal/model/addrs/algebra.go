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

// Overlaps reports whether an address is in both sets. It takes as many steps as the smaller of them has prefixes, each
// of the logarithm of the other.
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

// contains6Prefix reports whether one prefix of s covers p: siblings are joined, so if any do together, one does.
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

// Size is the number of ranges and prefixes that the set consists of.
func (s *Set) Size() int { return len(s.v4) + len(s.v6) }

// String is the set as the policy would write it, the first few of its prefixes.
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

// without4 cuts ranges out of others; both are sorted and disjoint.
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

// appendWithout6 appends what is left of a prefix, in ascending order. A prefix of which t has a part is halved until its
// halves are in t or beside it.
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
