// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// coverIndex finds, among many rules, the few that may cover a given rule. It uses properties that two such rules must
// share:
//
//   - A rule that asks for a single value of a field can only cover rules that ask for the same one. It is filed under
//     that value, of the field with most values.
//   - A rule that asks for an address in certain sets can only cover rules that ask for one of the same sets, or for a
//     set whose first address lies in one of those sets. It is filed under each dynamic set and each prefix of the
//     static sets, unless there are too many.
//
// A rule that has neither property is compared with all others. A rule that asks for an empty set matches nothing. Such
// a rule may stay in the program though another rule covers it.
type coverIndex struct {
	sets    []ir.Set
	filed   map[coverKey][]int
	lengths [129]bool // prefix lengths under which rules are filed; IPv4 prefixes count as IPv6 ones (widened)
}

// coverKey is the key under which a rule is filed. Either part may be absent.
type coverKey struct {
	addr  addrKey
	value fieldValue
}

// addrKey is a dynamic set or a prefix in source or destination addresses. The zero value is none.
type addrKey struct {
	side   uint8 // 1 is the source, 2 the destination
	set    int
	prefix netip.Prefix
}

type fieldValue struct {
	field packet.Field
	value uint32
}

var noValue = fieldValue{field: packet.NumKeys}

func newCoverIndex(sets []ir.Set) *coverIndex {
	return &coverIndex{sets: sets, filed: map[coverKey][]int{}}
}

func (x *coverIndex) add(r *ir.Rule, number int) {
	best := noValue
	for _, v := range singleValues(r) {
		if best == noValue || v.field.Size() > best.field.Size() {
			best = v
		}
	}
	keys := x.placesOf(r)
	if keys == nil {
		keys = []addrKey{{}}
	}
	for _, k := range keys {
		if k.prefix.IsValid() {
			x.lengths[k.prefix.Bits()] = true
		}
		key := coverKey{k, best}
		x.filed[key] = append(x.filed[key], number)
	}
}

// placesOf returns the keys of the addresses that a rule tests: those of its sources or those of its destinations, whichever have longer prefixes. It
// returns nil if there are too many keys, or if the rule tests no addresses.
func (x *coverIndex) placesOf(r *ir.Rule) (best []addrKey) {
	for side, matches := range match.Sides(r) {
		for _, m := range matches {
			keys := x.places(uint8(side+1), m)
			if keys != nil && (best == nil || keys[0].prefix.Bits() > best[0].prefix.Bits()) {
				best = keys
			}
		}
	}
	return best
}

func (x *coverIndex) places(side uint8, m ir.AddrMatch) (keys []addrKey) {
	const most = 64 // as for contains
	if m.Not {
		return nil
	}
	for _, i := range m.Sets {
		s := &x.sets[i]
		if s.Fixed() == nil {
			keys = append(keys, addrKey{side: side, set: i})
			continue
		}
		for p := range s.Static.Prefixes() {
			if len(keys) == most {
				return nil
			}
			keys = append(keys, addrKey{side: side, prefix: widened(p)})
		}
	}
	return keys
}

// widened maps an IPv4 prefix to an IPv4-mapped IPv6 prefix, so that one list of lengths serves both families.
func widened(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4() {
		return p
	}
	return netip.PrefixFrom(netip.AddrFrom16(p.Addr().As16()), 96+p.Bits())
}

// find returns the number of the first rule that covers r, or -1 if no rule does.
func (x *coverIndex) find(r *ir.Rule, covers func(int) bool) int {
	found := -1
	values := append(singleValues(r), noValue)
	for _, k := range x.within(r) {
		for _, v := range values {
			for _, i := range x.filed[coverKey{k, v}] {
				if (found < 0 || i < found) && covers(i) {
					found = i
				}
			}
		}
	}
	return found
}

// within returns all keys under which a rule that covers r may be filed.
func (x *coverIndex) within(r *ir.Rule) []addrKey {
	keys := []addrKey{{}}
	for side, matches := range match.Sides(r) {
		for _, m := range matches {
			if m.Not || len(m.Sets) == 0 {
				continue
			}
			s := &x.sets[m.Sets[0]] // a rule that covers r tests for all of these sets, so one set is enough
			if s.Fixed() == nil {
				keys = append(keys, addrKey{side: uint8(side + 1), set: m.Sets[0]})
			} else if first, ok := firstOf(s.Static); ok {
				keys = append(keys, x.around(uint8(side+1), first)...)
			}
		}
	}
	return keys
}

// around returns the prefixes that contain an address and whose length is one under which rules are filed.
func (x *coverIndex) around(side uint8, a netip.Addr) (keys []addrKey) {
	for bits, filed := range x.lengths {
		if !filed {
			continue
		}
		if p, err := a.Prefix(bits); err == nil {
			keys = append(keys, addrKey{side: side, prefix: p})
		}
	}
	return keys
}

// firstOf returns the first address of a set, in the form that widened gives; false if the set is empty.
func firstOf(s *addrs.Set) (netip.Addr, bool) {
	for p := range s.Prefixes() {
		return widened(p).Addr(), true
	}
	return netip.Addr{}, false
}

func singleValues(r *ir.Rule) []fieldValue {
	var out []fieldValue
	for _, m := range r.Match {
		if len(m.Values) == 1 && m.Values[0].First == m.Values[0].Last {
			out = append(out, fieldValue{m.Field, m.Values[0].First})
		}
	}
	return out
}
