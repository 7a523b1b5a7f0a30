// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// section is the code for the packets of one protocol of one family.
type section struct {
	*generator
	family *family
	proto  proto
	rules  []rule // the rules that packets of the section can match, in order
	before int    // the number of rules before the first one that tests the class of the source or a limit
	class0 []rule // those later rules that remain for a source of class 0
	first  int    // the index of the section's first record, or sameForAll, or tooMany
	labels int
	short  string   // the label for a datagram that is too short for an identifier: the code for stray packets, or general()
	apart  []func() // functions that add code after the main path; few packets reach that code
}

// newSection returns the section of a protocol, with the rules that packets of the section can match.
func newSection(g *generator, f *family, p proto) *section {
	s := &section{generator: g, family: f, proto: p}
	for i := range g.Program.Rules {
		if r, ok := s.specialize(i); ok {
			s.rules = append(s.rules, r)
		}
		if n := len(s.rules); n > 0 && s.rules[n-1].always() {
			break
		}
	}
	if s.tests() > mostTests {
		s.coarsen()
	}
	s.before = slices.IndexFunc(s.rules, func(r rule) bool { return len(r.static)+len(r.over) > 0 })
	if s.before < 0 {
		s.before = len(s.rules)
	}
	rest := newIndex(s.rules[s.before:])
	s.class0 = rest.left(s, 0)
	s.first = s.record(rest)
	return s
}

// mostTests is the largest number of rules with a test of the key, and without a test of the class, for which the entry generates code.
const mostTests = 400

// tests returns the number of rules with a test of the key.
func (s *section) tests() (n int) {
	for i := range s.rules {
		if len(s.rules[i].static) == 0 && s.key(&s.rules[i]) != nil {
			n++
		}
	}
	return n
}

// coarsen leaves to general() all keys from the lowest to the highest key of these rules, so that the rules need no code. general() finds the rule of
// a packet in its tables.
func (s *section) coarsen() {
	hull := ir.Range{First: 1<<16 - 1}
	var rest []rule
	for _, r := range s.rules {
		keys := s.key(&r)
		if len(r.static) > 0 || keys == nil {
			rest = append(rest, r)
			continue
		}
		hull.First, hull.Last = min(hull.First, keys[0].First), max(hull.Last, keys[len(keys)-1].Last)
	}
	left := []ir.Match{{Field: s.proto.field, Values: []ir.Range{hull}}}
	s.rules = append([]rule{{number: s.rules[0].number, match: left, general: true}}, rest...)
}

// label returns a label that belongs to the section.
func (s *section) label(name string) string { return s.family.name + "_" + s.proto.name + "_" + name }

// newLabel returns a label that is not used yet.
func (s *section) newLabel() string {
	s.labels++
	return s.label(fmt.Sprint(s.labels))
}

// mostCode is the largest number of instructions of a section. A longer section is left to general(), whose tables do not grow with the rules. All
// sections together must be within the reach of a jump.
const mostCode = 4000

// code generates the section, or a jump to general() if the section would be too long.
func (s *section) code() {
	name := s.family.name + "_" + s.proto.name
	before := len(s.Insns)
	s.Mark(name)
	s.Say("packets of " + name[len("entry_"):])
	s.body()
	if len(s.Insns)-before <= mostCode {
		return
	}
	s.Insns = s.Insns[:before]
	s.Mark(name)
	s.Add(asm.Ja.Label(toGeneral))
}

func (s *section) body() {
	s.whole()
	s.checks()
	if s.before > 0 {
		s.loadPorts()
		s.list(s.rules[:s.before], s.label("classes"))
	}
	s.Mark(s.label("classes"))
	if s.before < len(s.rules) {
		called := s.classes()
		s.Mark(s.label("unlisted"))
		if called || s.before == 0 {
			s.loadPorts()
		}
		s.list(s.class0, s.label("default"))
	}
	s.Mark(s.label("default"))
	s.decide(image.Decision(image.SlotDefault, uint8(s.Program.Default)))
	for i := 0; i < len(s.apart); i++ { // a function may append to s.apart
		s.apart[i]()
	}
}

// whole adds code that jumps to general() unless the packet contains the complete L4 header.
func (s *section) whole() {
	s.Add(asm.JLT.Imm(length, s.family.header()+s.proto.header, toGeneral))
	if end := int32(s.family.l4) + s.proto.header; s.is(packet.ProtoTCP) {
		s.Add(asm.LoadMem(asm.R1, context, s.at.end, asm.Word))
		s.inFrame(base, end, asm.R1)
	}
}

// loadPorts adds code that loads the ports that rules of the section test. If a rule tests the source port after the destination port, the rule
// itself loads the source port.
func (s *section) loadPorts() {
	s.load(dport, s.proto.field, s.keyAt())
	if s.proto.ports != nil && !s.sportLast() {
		s.load(sport, packet.SPort, 0)
	}
}

// sportLast reports whether each rule that tests the source port also tests the destination port, before it.
func (s *section) sportLast() bool {
	return !slices.ContainsFunc(s.rules, func(r rule) bool { return len(r.match) > 0 && r.match[0].Field == packet.SPort })
}

// load adds code that loads a 16-bit field of the L4 header, if any rule tests the field.
func (s *section) load(to asm.Register, f packet.Field, at int16) {
	if s.asks(f) {
		s.Add(asm.LoadMem(to, base, s.family.l4+at, asm.Half), asm.HostTo(asm.BE, to, asm.Half))
	}
}

// asks reports whether any rule of the section tests a field.
func (s *section) asks(f packet.Field) bool {
	for i := range s.rules {
		for _, m := range s.rules[i].match {
			if m.Field == f {
				return true
			}
		}
	}
	return false
}
