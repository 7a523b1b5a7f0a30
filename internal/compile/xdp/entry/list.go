// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// mostStraight is the largest number of rules with a test of the key that are tested in sequence. If there are more, a binary search finds the
// matching ones.
const mostStraight = 8

// list adds code that tests rules in order. If no rule decides the packet, the code jumps to next. The ports are in their registers before and after
// it.
func (s *section) list(rules []rule, next string) {
	s.search(rules, ir.Range{First: 0, Last: 1<<16 - 1}, next)
}

// search adds code that tests rules, for packets whose key is in the range in.
func (s *section) search(rules []rule, in ir.Range, next string) {
	rules = s.clip(rules, in)
	bounds := s.bounds(rules, in)
	if len(bounds) == 0 || s.keyed(rules) <= mostStraight || len(s.Insns) > 1<<15 {
		s.straight(rules, next)
		return
	}
	middle, right := bounds[len(bounds)/2], s.newLabel()
	s.Add(asm.JGE.Imm(dport, int32(middle), right))
	s.search(rules, ir.Range{First: in.First, Last: middle - 1}, next)
	s.Mark(right)
	s.search(rules, ir.Range{First: middle, Last: in.Last}, next)
}

// keyed returns the number of rules that test the key.
func (s *section) keyed(rules []rule) (n int) {
	for i := range rules {
		if s.key(&rules[i]) != nil {
			n++
		}
	}
	return n
}

// key returns the values of the key that a rule matches. It returns nil if the rule does not test the key.
func (s *section) key(r *rule) []ir.Range {
	for _, m := range r.match {
		if m.Field == s.proto.field {
			return m.Values
		}
	}
	return nil
}

// bounds returns the values within a range at which the set of matching rules changes, in ascending order.
func (s *section) bounds(rules []rule, in ir.Range) (at []uint32) {
	for i := range rules {
		for _, v := range s.key(&rules[i]) {
			for _, bound := range []uint32{v.First, v.Last + 1} {
				if in.First < bound && bound <= in.Last {
					at = append(at, bound)
				}
			}
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// straight adds code that tests rules in sequence.
func (s *section) straight(rules []rule, next string) {
	other := ""
	for i := range rules {
		repeats := i > 0 && sameMatch(&rules[i-1], &rules[i])
		if !repeats {
			other = s.newLabel()
		}
		if s.rule(&rules[i], rules[i+1:], repeats, other) {
			return
		}
		if i+1 == len(rules) || !sameMatch(&rules[i], &rules[i+1]) {
			s.Mark(other)
		}
	}
	s.Add(asm.Ja.Label(next))
}

// sameMatch reports whether two rules test the same fields, for the same values.
func sameMatch(a, b *rule) bool {
	return slices.EqualFunc(a.match, b.match, func(a, b ir.Match) bool {
		return a.Field == b.Field && slices.Equal(a.Values, b.Values)
	})
}

// rule generates the code of a rule. It reports whether the rule decides every packet that reaches it. later are the rules after it. If repeats is
// set, the field tests are the same as those of the previous rule, and they are left out. A packet that fails them has already jumped to next, behind
// both rules.
func (s *section) rule(r *rule, later []rule, repeats bool, next string) (final bool) {
	source := &s.Program.Rules[r.number]
	s.Say("rule " + source.Name + ": " + source.Verdict.String())
	moved := s.newLabel()
	if !repeats {
		for _, m := range r.match {
			s.test(s.value(m.Field), m.Values, next)
		}
	}
	if r.mss != nil {
		s.segmentSize(r.mss, moved)
	}
	var asks []rule
	if len(r.over) > 0 {
		asks = generals(later)
	}
	if r.general || len(r.over) > 0 && r.protect || len(asks) > mostAsks { // general() also makes the other tests
		s.Add(asm.Ja.Label(toGeneral))
		if r.mss != nil {
			s.Mark(moved)
		}
		return len(r.match)+len(r.mss) == 0
	}
	if r.protect {
		s.notQuestion(toGeneral) // a question may set another time
	}
	for _, t := range r.dynamic {
		s.member(t, moved)
	}
	switch {
	case r.protect:
		s.protected(r)
	case r.reply:
		s.replies(s.Decisions[r.number], moved)
		s.Mark(moved)
	case r.flood:
		s.askFlood(source, later, s.Decisions[r.number])
	case len(r.over) > 0: // the packet is known to carry no question
		s.exceeds(r, asks, moved)
		s.decideAs(s.Decisions[r.number], notAsked)
	default:
		s.decide(s.Decisions[r.number])
	}
	switch {
	case len(r.dynamic)+len(r.over) > 0:
		s.Mark(moved)
		s.loadPorts()
	case r.mss != nil:
		s.Mark(moved)
	}
	return len(r.match)+len(r.dynamic)+len(r.over)+len(r.mss) == 0 && !r.reply && (!r.flood || source.Asks == ir.AsksSpent)
}

// test adds code that jumps to next unless a value is in one of the ranges. The code changes r2.
func (s *section) test(value asm.Register, in []ir.Range, next string) {
	last := len(in) - 1
	found := ""
	if last > 0 {
		found = s.newLabel()
	}
	for i, v := range in {
		if i < last {
			s.within(value, v, found)
			continue
		}
		s.notWithin(value, v, next)
	}
	if found != "" {
		s.Mark(found)
	}
}

// within adds code that jumps to the label to if a value is in a range.
func (s *section) within(value asm.Register, v ir.Range, to string) {
	if v.First == v.Last {
		s.Add(asm.JEq.Imm(value, int32(v.First), to))
		return
	}
	s.Add(asm.Mov.Reg(asm.R2, value), asm.Sub.Imm(asm.R2, int32(v.First)), asm.JLE.Imm(asm.R2, int32(v.Last-v.First), to))
}

// notWithin adds code that jumps to the label to if a value is outside of a range.
func (s *section) notWithin(value asm.Register, v ir.Range, to string) {
	if v.First == v.Last {
		s.Add(asm.JNE.Imm(value, int32(v.First), to))
		return
	}
	if v.First > 0 {
		s.Add(asm.JLT.Imm(value, int32(v.First), to))
	}
	s.Add(asm.JGT.Imm(value, int32(v.Last), to))
}

// value returns the register that has the value of a field. If the field is in no register, value adds code that loads it into r1.
func (s *section) value(f packet.Field) asm.Register {
	const value = asm.R1
	switch f {
	case s.proto.field:
		return dport
	case packet.SPort:
		if !s.sportLast() {
			return sport
		}
		s.load(value, packet.SPort, 0)
	case packet.Flags:
		s.Add(asm.LoadMem(value, base, s.family.l4+13, asm.Byte))
	case packet.Length:
		s.loadLength(value, s.family)
	case packet.TTL:
		s.Add(asm.LoadMem(value, base, s.family.ttl, asm.Byte))
	case packet.DSCP:
		if s.family.value == packet.FamilyIPv4 {
			s.Add(asm.LoadMem(value, base, 15, asm.Byte), asm.RSh.Imm(value, 2))
		} else {
			s.Add(asm.LoadMem(value, base, 14, asm.Half), asm.HostTo(asm.BE, value, asm.Half), asm.RSh.Imm(value, 6), asm.And.Imm(value, 0x3f))
		}
	}
	return value
}

// member adds code that jumps to next unless an address is in one of the sets. If not is set, it jumps unless the address is in none of the sets. The
// code changes r0 to r5.
func (s *section) member(t dynamicTest, next string) {
	in := next
	if !t.not {
		in = s.newLabel()
	}
	for number := range int32(image.MaxDynamicSets) {
		if t.sets>>number&1 == 1 {
			if t.destination && s.isOwn(number) {
				s.own(in)
			}
			s.has(number, t.destination, in, func() {})
		}
	}
	if !t.not {
		s.Add(asm.Ja.Label(next))
		s.Mark(in)
	}
}

// MarksOffset is the offset of addrs.DynamicMemory.Marks in the map image.DynamicInfo, after that of Own.
const MarksOffset = image.OwnOffset + addrs.OwnBytes

// has adds code that jumps to the label in if a dynamic set contains the source, or the destination. For most addresses, a mark shows that no set
// contains them. The code for other addresses is outside of the main path, so that most packets need no jump. The code changes r0 to r5, except the
// registers that restore loads again.
func (s *section) has(set int32, destination bool, in string, restore func()) {
	marked, back := s.newLabel(), s.newLabel()
	last := s.place(destination) + s.family.addressBytes() - 2
	s.Add(
		asm.LoadMem(asm.R1, base, last, asm.Half), asm.RSh.Imm(asm.R1, addrs.MarkShift),
		asm.LoadMapValue(asm.R2, 0, MarksOffset).WithReference(image.DynamicInfo), asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R2, asm.R2, 0, asm.Byte), asm.JSet.Imm(asm.R2, 1<<set, marked),
	)
	s.Mark(back)
	s.apart = append(s.apart, func() {
		s.Mark(marked)
		s.find(set, destination, in)
		restore()
		s.Add(asm.Ja.Label(back))
	})
}

// place returns the offset of the source or destination address.
func (s *section) place(destination bool) int16 {
	if destination {
		return s.family.dest
	}
	return s.family.source
}

// find adds a call of is_member() of bpf/dynamic.h. The code jumps to the label in if a dynamic set contains an address. It changes r0 to r5.
func (s *section) find(set int32, destination bool, in string) {
	s.Add(asm.Mov.Imm(asm.R1, set))
	s.address(asm.R2, asm.R3, s.place(destination))
	s.Add(
		asm.Mov.Imm(asm.R4, int32(s.family.value)),
		asm.Call.Label(image.IsMember),
		asm.JNE.Imm(asm.R0, 0, in),
	)
}

// address adds code that loads an address as two numbers in host byte order. An IPv4 address is in its IPv4-mapped form. The code changes only the
// registers hi and lo.
func (s *section) address(hi, lo asm.Register, at int16) {
	if s.family.value == packet.FamilyIPv6 {
		s.Add(
			asm.LoadMem(hi, base, at, asm.DWord), asm.HostTo(asm.BE, hi, asm.DWord),
			asm.LoadMem(lo, base, at+8, asm.DWord), asm.HostTo(asm.BE, lo, asm.DWord),
		)
		return
	}
	s.Add(
		asm.LoadMem(hi, base, at, asm.Word), asm.HostTo(asm.BE, hi, asm.Word),
		asm.LoadImm(lo, 0xffff_0000_0000, asm.DWord), asm.Or.Reg(lo, hi),
		asm.Mov.Imm(hi, 0),
	)
}
