// SPDX-License-Identifier: Apache-2.0

package match

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Sides returns a rule's tests of the source address and its tests of the destination address.
func Sides(r *ir.Rule) [2][]ir.AddrMatch { return [2][]ir.AddrMatch{r.Src, r.Dst} }

// DstSide is the index of the destination tests in the result of Sides.
const DstSide = 1

// Values returns the values of a field that a rule allows.
func Values(r *ir.Rule, f packet.Field) []ir.Range {
	for _, m := range r.Match {
		if m.Field == f {
			return m.Values
		}
	}
	return []ir.Range{{First: 0, Last: f.Size() - 1}}
}

// Metered reports whether a rule has an effect on packets that it does not decide: it counts them, or charges them to a limit.
func Metered(r *ir.Rule) bool { return Limited(r) || r.Observe }

// Limited reports whether a match of a rule depends on a rate limit, on a number of connections, or on the state of a flood.
func Limited(r *ir.Rule) bool { return len(r.Over) > 0 || r.Connections != nil || r.Asks != ir.NoFlood }

// Impossible reports whether no packet can match a rule because the rule allows no value of a field. It returns such a field.
func Impossible(r ir.Rule) (packet.Field, bool) {
	for _, m := range r.Match {
		if len(m.Values) == 0 {
			return m.Field, true
		}
	}
	return 0, false
}

// Repeats reports whether rule i has the same tests as the rule before it, so that its packets have already passed these tests. This is so for an
// essential rule behind its limit.
func Repeats(rules []ir.Rule, i int) bool {
	return i > 0 && i < len(rules) && rules[i].Kind == ir.RuleKindEssential && rules[i-1].Name == rules[i].Name+":limited"
}

// Also adds a test to a list that has at most one test per field. If the list already tests the field, both tests become one test of the values that
// both allow. Also may change the list in place.
func Also(tests []ir.Match, m ir.Match) []ir.Match {
	i := slices.IndexFunc(tests, func(t ir.Match) bool { return t.Field == m.Field })
	if i < 0 {
		return append(tests, m)
	}
	size := m.Field.Size()
	either := append(ranges.Complement(tests[i].Values, size), ranges.Complement(m.Values, size)...)
	tests[i].Values = ranges.Complement(ranges.Normalize(either), size)
	return tests
}

// IsLocal reports whether a set is the set of the host's own addresses. netfilter has its own test for these.
func IsLocal(s *ir.Set) bool { return s.Dynamic != nil && s.Dynamic.Local }

// HasLocal reports whether one of the sets of a match is the set of the host's own addresses.
func HasLocal(sets []ir.Set, m ir.AddrMatch) bool {
	return slices.ContainsFunc(m.Sets, func(i int) bool { return IsLocal(&sets[i]) })
}

// Elsewhere simplifies a match for addresses that are not the host's own. left is the remaining match. always reports whether the match holds for all
// such addresses.
func Elsewhere(sets []ir.Set, m ir.AddrMatch) (left ir.AddrMatch, always bool) {
	others := slices.DeleteFunc(slices.Clone(m.Sets), func(i int) bool { return IsLocal(&sets[i]) })
	return ir.AddrMatch{Sets: others, Not: m.Not}, m.Not && len(others) == 0
}

// Here simplifies a match for addresses that are the host's own. left is the remaining match. always reports whether the match holds for all such
// addresses. If it holds for none of them, left has no sets.
func Here(sets []ir.Set, m ir.AddrMatch) (left ir.AddrMatch, always bool) {
	if !HasLocal(sets, m) {
		return m, false
	}
	return ir.AddrMatch{}, !m.Not
}

// Families returns the address families of the packets that a rule can match, according to the rule's own tests.
func Families(sets []ir.Set, r *ir.Rule) (in []uint32) {
	for _, family := range BothFamilies {
		of := *r
		of.Match = Also(slices.Clone(r.Match), ir.Match{Field: packet.Family, Values: ranges.Of(family)})
		if _, none := Impossible(of); !none && allowsFamily(sets, r, family) && !contradicts(&of) {
			in = append(in, family)
		}
	}
	return in
}

// ReadsHeader reports whether a rule has a test that reads the L4 header or the payload.
func ReadsHeader(r *ir.Rule) bool {
	return len(r.Payload) > 0 || slices.ContainsFunc(r.Match, func(m ir.Match) bool { return IsHeader(m.Field) })
}

// Tests reports whether a rule tests a field.
func Tests(r *ir.Rule, f packet.Field) bool {
	return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == f })
}

// IsHeader reports whether a field is read from the L4 header.
func IsHeader(f packet.Field) bool {
	return f == packet.DPort || f == packet.SPort || f == packet.Flags || f == packet.ICMP || f == packet.MSS
}
