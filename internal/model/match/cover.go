// SPDX-License-Identifier: Apache-2.0

package match

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Covers reports whether rule a certainly matches all packets that rule b matches. If it returns false, a may still match them all.
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

// impliedBy reports whether every condition in want certainly holds for an address for which all conditions in have hold.
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
	if have.Not { // an address that is not in a larger set is not in a smaller one either
		have, want = want, have
	}
	for _, s := range have.Sets {
		if !slices.ContainsFunc(want.Sets, func(w int) bool { return w == s || contains(sets[w], sets[s]) }) {
			return false
		}
	}
	return true
}

// contains reports whether set a contains set b. It returns false if one of the sets can change, or if the test would take long.
func contains(a, b ir.Set) bool {
	const quick = 64
	return a.Fixed() != nil && b.Fixed() != nil && b.Static.Size() <= quick && a.Static.Covers(b.Static)
}
