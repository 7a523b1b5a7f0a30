// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"math"
	"net/netip"
	"slices"
)

// The prefix lengths whose prefixes are counted, the most specific first.
var (
	lengths4 = []int{32, 24, 16}
	lengths6 = []int{128, 64, 48}
)

// Hierarchy counts addresses and the prefixes that contain them, with a Counter for each length. It is the algorithm of Mitzenmacher, Steinke and
// Thaler, "Hierarchical Heavy Hitters with the Space Saving Algorithm", ALENEX 2012.
type Hierarchy struct {
	levels [3]*Counter[netip.Prefix]
}

// NewHierarchy makes a Hierarchy with this many places for each prefix length.
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

// Total returns the number of additions.
func (h *Hierarchy) Total() uint64 { return h.levels[0].Total() }

// Get returns the count of a prefix. The length of the prefix must be one of the counted lengths.
func (h *Hierarchy) Get(p netip.Prefix) Count[netip.Prefix] {
	lengths := lengths6
	if p.Addr().Is4() {
		lengths = lengths4
	}
	return h.levels[max(0, slices.Index(lengths, p.Bits()))].Get(p)
}

// prefixOf returns the prefix of an address at a level. The address must be valid.
func prefixOf(a netip.Addr, level int) netip.Prefix {
	lengths := lengths6
	if a.Is4() {
		lengths = lengths4
	}
	p, _ := a.Prefix(lengths[level])
	return p
}

// Heavy is a prefix with a large share of the packets. Rest is the number of its packets that are not in a longer prefix of the list.
type Heavy struct {
	Count[netip.Prefix]
	Rest uint64 // an upper bound
}

// Heavy returns the hierarchical heavy hitters, the longest prefixes first. For each prefix, packets in longer listed prefixes are subtracted. The
// prefix is listed when the rest is at least the given share of all packets. No such prefix is missing. A prefix whose count has an error may be
// listed with a smaller share; Least returns the lower limit of its count.
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

// below returns, for each prefix of a level, a lower limit of its packets that are in listed prefixes. A listed prefix within another one does not
// count twice.
func (h *Hierarchy) below(list []Heavy, level int) map[netip.Prefix]uint64 {
	sums := map[netip.Prefix]uint64{}
	for i, inner := range list {
		within := false
		for _, outer := range list[i+1:] { // the shorter prefixes follow in the list
			within = within || outer.Key.Bits() < inner.Key.Bits() && outer.Key.Overlaps(inner.Key)
		}
		if !within {
			sums[prefixOf(inner.Key.Addr(), level)] += inner.Least()
		}
	}
	return sums
}
