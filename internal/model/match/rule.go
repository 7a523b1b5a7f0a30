package match

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Sides are what a rule asks of the source, and of the destination.
func Sides(r *ir.Rule) [2][]ir.AddrMatch { return [2][]ir.AddrMatch{r.Src, r.Dst} }

// DstSide is the index of destinations in Sides.
const DstSide = 1

// Values are the values of a field that a rule allows.
func Values(r *ir.Rule, f packet.Field) []ir.Range {
	for _, m := range r.Match {
		if m.Field == f {
			return m.Values
		}
	}
	return []ir.Range{{First: 0, Last: f.Size() - 1}}
}

// Metered reports whether it matters to r which packets come to it, beyond those that it decides: they are charged to its
// limits, or counted.
func Metered(r *ir.Rule) bool { return Limited(r) || r.Observe }

// Limited reports whether a rule matches what exceeds a limit, or does not: a rate, or a number of connections.
func Limited(r *ir.Rule) bool { return len(r.Over) > 0 || r.Connections != nil || r.Asks != ir.NoFlood }

// Impossible reports whether nothing can match a rule, and a field of which it allows no value.
func Impossible(r ir.Rule) (packet.Field, bool) {
	for _, m := range r.Match {
		if len(m.Values) == 0 {
			return m.Field, true
		}
	}
	return 0, false
}

// Repeats reports whether a rule has the tests of the one before it, so that what comes to it has passed them.
func Repeats(rules []ir.Rule, i int) bool {
	return i > 0 && i < len(rules) && rules[i].Kind == ir.RuleKindEssential && rules[i-1].Name == rules[i].Name+":limited"
}

// Also adds a test to tests of which each has a field of its own: two tests of a field become one of what both allow.
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

// IsLocal reports whether a set is that of the host's own addresses, which netfilter knows by itself.
func IsLocal(s *ir.Set) bool { return s.Dynamic != nil && s.Dynamic.Local }

// HasLocal reports whether a match is about the host's own addresses, among others.
func HasLocal(sets []ir.Set, m ir.AddrMatch) bool {
	return slices.ContainsFunc(m.Sets, func(i int) bool { return IsLocal(&sets[i]) })
}

// Elsewhere is what is left of a match for addresses that are not the host's own. always reports whether nothing is, and
// the match holds.
func Elsewhere(sets []ir.Set, m ir.AddrMatch) (left ir.AddrMatch, always bool) {
	others := slices.DeleteFunc(slices.Clone(m.Sets), func(i int) bool { return IsLocal(&sets[i]) })
	return ir.AddrMatch{Sets: others, Not: m.Not}, m.Not && len(others) == 0
}

// Here is what is left of a match for addresses of which it is known that they are the host's own. always reports whether
// the match holds for all of them; when it holds for none, no set is left.
func Here(sets []ir.Set, m ir.AddrMatch) (left ir.AddrMatch, always bool) {
	if !HasLocal(sets, m) {
		return m, false
	}
	return ir.AddrMatch{}, !m.Not
}

// Families are the families whose packets can match a rule, as far as its own tests tell.
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

// ReadsHeader reports whether a rule tests what only packets with an L4 header have.
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
