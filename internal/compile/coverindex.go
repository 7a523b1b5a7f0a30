package compile

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// coverIndex finds the few rules that may cover another among many, by what they must have in common:
//
//   - A rule that asks for a single value of a field can only cover rules that ask for the same one. It is filed under
//     that value, of the field with most values.
//   - A rule that asks for an address in certain sets can only cover rules of which some set is one of those, or lies
//     within them with its first address. It is filed under each dynamic set and each prefix of the static ones, unless
//     they have many.
//
// Rules for which neither helps are compared with all others. A rule that asks for an empty set, which nothing can
// match, may be kept though another covers it.
type coverIndex struct {
	sets    []ir.Set
	filed   map[coverKey][]int
	lengths [129]bool // of prefixes under which rules are filed, IPv4 as IPv6 does
}

// coverKey is what rules are filed under, each part of it if there is one.
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

// placesOf are the keys of the addresses that a rule asks for: of its sources or its destinations, whichever are
// narrower. It is nil when there are too many, or the rule does not ask.
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

// widened is an IPv4 prefix among those of IPv6, so that one list of lengths serves both.
func widened(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4() {
		return p
	}
	return netip.PrefixFrom(netip.AddrFrom16(p.Addr().As16()), 96+p.Bits())
}

// find returns the number of the first rule that covers r, -1 when there is none.
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

// within are all keys that a rule may be filed under that covers r.
func (x *coverIndex) within(r *ir.Rule) []addrKey {
	keys := []addrKey{{}}
	for side, matches := range match.Sides(r) {
		for _, m := range matches {
			if m.Not || len(m.Sets) == 0 {
				continue
			}
			s := &x.sets[m.Sets[0]] // what covers r has all of its sets
			if s.Fixed() == nil {
				keys = append(keys, addrKey{side: uint8(side + 1), set: m.Sets[0]})
			} else if first, ok := firstOf(s.Static); ok {
				keys = append(keys, x.around(uint8(side+1), first)...)
			}
		}
	}
	return keys
}

// around are the prefixes of an address that rules are filed under.
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

// firstOf is the first address of a set, as widened has it.
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
