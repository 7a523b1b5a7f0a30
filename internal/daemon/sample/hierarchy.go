package sample

import (
	"math"
	"net/netip"
	"slices"
)

// The lengths of the prefixes that are counted, the most specific first.
var (
	lengths4 = []int{32, 24, 16}
	lengths6 = []int{128, 64, 48}
)

// Hierarchy counts addresses and the prefixes that they are in, a Counter for each length: the algorithm of Mitzenmacher, Steinke and
// Thaler, "Hierarchical Heavy Hitters with the Space Saving Algorithm", ALENEX 2012.
type Hierarchy struct {
	levels [3]*Counter[netip.Prefix]
}

// NewHierarchy makes a Hierarchy of so many places for each length of prefixes.
func NewHierarchy(places int) *Hierarchy {
	h := &Hierarchy{}
	for i := range h.levels {
		h.levels[i] = NewCounter[netip.Prefix](places)
	}
	return h
}

// Add counts an address.
func (h *Hierarchy) Add(a netip.Addr) {
	for i, level := range h.levels {
		level.Add(prefixOf(a, i))
	}
}

// Total is the number of additions.
func (h *Hierarchy) Total() uint64 { return h.levels[0].Total() }

// Get is the count of a prefix of one of the lengths that are counted.
func (h *Hierarchy) Get(p netip.Prefix) Count[netip.Prefix] {
	lengths := lengths6
	if p.Addr().Is4() {
		lengths = lengths4
	}
	return h.levels[max(0, slices.Index(lengths, p.Bits()))].Get(p)
}

// prefixOf is the prefix of an address at a level. The address must be valid.
func prefixOf(a netip.Addr, level int) netip.Prefix {
	lengths := lengths6
	if a.Is4() {
		lengths = lengths4
	}
	p, _ := a.Prefix(lengths[level])
	return p
}

// Heavy is a prefix that has a large share of the packets, and how many of them are in none of the longer prefixes that have
// one too.
type Heavy struct {
	Count[netip.Prefix]
	Rest uint64 // at most so many
}

// Heavy are the hierarchical heavy hitters: all prefixes, the longest first, of whose packets at least the share are in no longer
// prefix that is already listed. None is missing. One whose count has an error may be there without having the share: Least tells.
func (h *Hierarchy) Heavy(share float64) []Heavy {
	least := uint64(max(1, math.Ceil(share*float64(h.Total()))))
	var list []Heavy
	for level := range h.levels {
		below := h.below(list, level)
		for _, c := range h.levels[level].counts() {
			rest := c.Packets - min(c.Packets, below[c.Key])
			if rest >= least {
				list = append(list, Heavy{c, rest})
			}
		}
	}
	return list
}

// below is how many packets of each prefix of a level are in prefixes of a list for certain, those within another one of the list left
// out.
func (h *Hierarchy) below(list []Heavy, level int) map[netip.Prefix]uint64 {
	sums := map[netip.Prefix]uint64{}
	for i, inner := range list {
		within := false
		for _, outer := range list[i+1:] { // behind it stand the shorter ones
			within = within || outer.Key.Bits() < inner.Key.Bits() && outer.Key.Overlaps(inner.Key)
		}
		if !within {
			sums[prefixOf(inner.Key.Addr(), level)] += inner.Least()
		}
	}
	return sums
}
