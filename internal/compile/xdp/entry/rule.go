// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// rule is a rule for the packets of a section. It has only those tests that not all of these packets pass.
type rule struct {
	number  int
	match   []ir.Match // tests of fields, with values as in the packet: ports from 0 on, ICMP types without the offset of the family
	static  []staticTest
	dynamic []dynamicTest
	mss     []ir.Range // allowed values of packet.MSS
	over    []int      // limits, by their index in Program.Limits; a packet must exceed one of them
	general bool       // the remaining tests or actions are left to general()
	reply   bool       // the packet must be a reply
	flood   bool       // the rule has a question about a flood
	protect bool       // passing packets go through a protection; segments of an open connection pass directly
}

// staticTest tests whether the source is in any of some static sets, or in any of some dynamic sets.
type staticTest struct {
	expr int // the expression, which depends on the class
	not  bool
	or   uint32 // the dynamic sets, a bit each
}

// dynamicTest tests whether an address is in any of some dynamic sets.
type dynamicTest struct {
	destination bool
	sets        uint32 // a bit each
	not         bool
}

// leave leaves the remaining tests and actions of the rule to general().
func (r *rule) leave() { r.general, r.protect = true, false }

// always reports whether a rule matches every packet.
func (r *rule) always() bool {
	return len(r.match)+len(r.static)+len(r.dynamic)+len(r.over)+len(r.mss) == 0 && !r.general && !r.protect && !r.reply && !r.flood
}

// specialize returns the rule with this number, for packets of the section. ok is false if none of these packets can match the rule.
func (s *section) specialize(number int) (r rule, ok bool) {
	source := &s.Program.Rules[number]
	decision := s.Decisions[number] & 0xff
	r = rule{number: number, over: source.Over}
	r.protect = decision == image.Protected|uint32(ir.Pass) && s.proto.number == packet.ProtoTCP
	r.general = decision > uint32(ir.Drop) && !r.protect
	switch {
	case source.Reply && onlyFields(source) && len(source.Over) == 0 && s.proto.ports != nil:
		r.reply = true
	case source.Asks != ir.NoFlood && onlyFields(source) && s.proto.number == packet.ProtoUDP:
		r.flood, r.over = true, nil
		if source.Asks == ir.AsksServed || source.Asks == ir.AsksQuery || source.Asks == ir.AsksOpening { // query() leaves packets of these rules to general()
			r.general = false
		}
	case source.Conditional() && !justLimited(source):
		r.over = nil
		r.leave()
	}
	for _, m := range source.Match {
		if !s.field(&r, m) {
			return r, false
		}
	}
	for _, m := range source.Src {
		s.source(&r, m)
	}
	for _, m := range source.Dst {
		s.destination(&r, m)
	}
	return r, true
}

// onlyFields reports whether a rule tests only fields, limits, replies and floods.
func onlyFields(r *ir.Rule) bool {
	return len(r.Src)+len(r.Dst)+len(r.Payload)+len(r.Names)+len(r.Sources) == 0 && !r.Observe && r.Until == 0 && r.Connections == nil && !r.Unanswered
}

// justLimited reports whether a rule tests only addresses, fields and limits.
func justLimited(r *ir.Rule) bool {
	return len(r.Payload)+len(r.Names)+len(r.Sources) == 0 && !r.Reply && r.Asks == ir.NoFlood && !r.Observe && r.Until == 0 && !r.Unanswered
}

// field adds a test of a field to r, unless all packets of the section pass it. It returns false if no packet of the section can pass it.
func (s *section) field(r *rule, m ir.Match) bool {
	left, all := m.Values, m.Field.Size()
	switch m.Field {
	case packet.DPort, packet.SPort:
		if s.proto.ports == nil {
			return m.Has(packet.PortNone)
		}
		left, all = within(m, *s.proto.ports), 1<<16
	case packet.ICMP:
		if s.proto.types == nil {
			return m.Has(packet.ICMPNone)
		}
		left, all = within(m, *s.proto.types), 1<<16
	case packet.Flags:
		if s.proto.number != packet.ProtoTCP {
			return m.Has(packet.FlagsNone)
		}
		left, all = within(m, ir.Range{First: 0, Last: packet.FlagsNone - 1}), packet.FlagsNone
	case packet.Proto:
		return m.Has(s.proto.number)
	case packet.Family:
		return m.Has(s.family.value)
	case packet.Fragment:
		return m.Has(packet.FragmentNone)
	case packet.VLAN:
		return m.Has(packet.VLANNone)
	case packet.MSS:
		if s.proto.number != packet.ProtoTCP {
			return m.Has(packet.MSSNone)
		}
		r.mss = m.Values
		return len(m.Values) > 0
	case packet.DNS, packet.Verified:
		if s.proto.number == packet.ProtoUDP {
			r.leave()
			return true
		}
		return m.Has(map[packet.Field]uint32{packet.DNS: packet.DNSNone, packet.Verified: 0}[m.Field])
	}
	if len(left) == 0 {
		return false
	}
	if left[0] != (ir.Range{First: 0, Last: all - 1}) {
		r.match = append(r.match, ir.Match{Field: m.Field, Values: left})
	}
	return true
}

// within returns the values of a match that are in a range, minus the first value of the range.
func within(m ir.Match, in ir.Range) []ir.Range {
	return ranges.Shift(ranges.Common(m.Values, []ir.Range{in}, m.Field.Size()), in.First)
}

// source adds a test of the source to r.
func (s *section) source(r *rule, m ir.AddrMatch) {
	sets := s.dynamicBits(m)
	if expr := s.Classes.Expr(m); expr >= 0 {
		r.static = append(r.static, staticTest{expr, m.Not, sets})
		return
	}
	r.dynamic = append(r.dynamic, dynamicTest{sets: sets, not: m.Not})
}

// destination adds a test of the destination to r. The entry does not look up the class of the destination.
func (s *section) destination(r *rule, m ir.AddrMatch) {
	if s.Classes.Expr(m) >= 0 {
		r.leave()
		return
	}
	r.dynamic = append(r.dynamic, dynamicTest{destination: true, sets: s.dynamicBits(m), not: m.Not})
}

// dynamicBits returns the dynamic sets of a match, a bit for each set's number.
func (s *section) dynamicBits(m ir.AddrMatch) (bits uint32) {
	for _, set := range m.Sets {
		if number, ok := s.Dynamic[set]; ok {
			bits |= 1 << number
		}
	}
	return bits
}

// reduce returns the rule without the tests that all sources of a class pass. It returns false if no source of the class can match.
func (s *section) reduce(r rule, class int) (rule, bool) {
	tests := r.static
	r.static, r.dynamic = nil, slices.Clone(r.dynamic)
	for _, t := range tests {
		switch {
		case s.Classes.Holds(class, t.expr):
			if t.not {
				return r, false
			}
		case t.or != 0:
			r.dynamic = append(r.dynamic, dynamicTest{sets: t.or, not: t.not})
		case !t.not:
			return r, false
		}
	}
	return r, true
}

// clip returns the rules for packets whose key, in r3, is in a range. Tests of the key that all these packets pass are removed.
func (s *section) clip(rules []rule, in ir.Range) (left []rule) {
	for _, r := range rules {
		r.match = slices.Clone(r.match)
		i := slices.IndexFunc(r.match, func(m ir.Match) bool { return m.Field == s.proto.field })
		if i >= 0 {
			both := ranges.Common(r.match[i].Values, []ir.Range{in}, 1<<16)
			switch {
			case len(both) == 0:
				continue
			case both[0] == in:
				r.match = slices.Delete(r.match, i, i+1)
			default:
				r.match[i].Values = both
			}
		}
		left = append(left, r)
		if r.always() {
			break
		}
	}
	return left
}
