package match

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Covers reports whether a surely matches all that b matches.
func Covers(sets []ir.Set, a, b *ir.Rule) bool {
	if a.Conditional() {
		return false
	}
	for _, m := range a.Match {
		i := slices.IndexFunc(b.Match, func(o ir.Match) bool { return o.Field == m.Field })
		if i < 0 || !ranges.Within(b.Match[i].Values, m.Values) {
			return false
		}
	}
	return impliedBy(sets, a.Src, b.Src) && impliedBy(sets, a.Dst, b.Dst)
}

// impliedBy reports whether each condition of want surely holds when all of have do.
func impliedBy(sets []ir.Set, want, have []ir.AddrMatch) bool {
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h ir.AddrMatch) bool { return implies(sets, h, w) }) {
			return false
		}
	}
	return true
}

func implies(sets []ir.Set, have, want ir.AddrMatch) bool {
	if have.Not != want.Not {
		return false
	}
	if have.Not { // not in a larger set implies not in a smaller one
		have, want = want, have
	}
	for _, s := range have.Sets {
		if !slices.ContainsFunc(want.Sets, func(w int) bool { return w == s || contains(sets[w], sets[s]) }) {
			return false
		}
	}
	return true
}

// contains reports whether a contains b, for sets that never change, if that is known quickly.
func contains(a, b ir.Set) bool {
	const quick = 64
	return a.Fixed() != nil && b.Fixed() != nil && b.Static.Size() <= quick && a.Static.Covers(b.Static)
}
