// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// straight compiles rules one after the other, the form for few rules. Register plan:
//
//	r6  the packet
//	r7  the source: a bit for each address expression and dynamic set that holds
//	r8  the same for the destination
//	r1  the value that is tested
//	r2  for intermediate results
//
// The stack holds the context.
//
// A rule is a chain of tests, each of which jumps to the next rule when it fails.
type straight struct {
	program    *ir.Program
	addrs      *addresses
	conditions *conditions
	decisions  []uint32 // of each rule
	emitter
}

// straightContext is the offset of the context on the stack.
const straightContext = -8

// possible reports whether straight code can be used: the expressions and dynamic sets must fit into one register, and the code must be short enough
// for the range of a jump.
func (s *straight) possible() bool {
	const mostTests = 4000
	return len(s.addrs.exprs)+len(s.addrs.dynamic) <= 64 && s.tests() < mostTests
}

// tests returns an estimate of the number of comparisons.
func (s *straight) tests() int {
	n := 0
	for _, r := range s.program.Rules {
		n += 1 + len(r.Src) + len(r.Dst)
		for _, m := range r.Match {
			n += comparisons(m)
		}
	}
	return n
}

// cost returns an estimate of the time in nanoseconds for a packet that matches no rule. Most rules fail at their first or second test.
func (s *straight) cost() float64 {
	const perRule, perRange, perMask = 0.35, 0.2, 1.5
	ns := 1.0
	if s.addrs.srcClass || s.addrs.dstClass {
		ns += perMask
	}
	for i, r := range s.program.Rules {
		if match.Repeats(s.program.Rules, i) {
			continue // a packet that fails the previous rule also skips this one
		}
		ns += perRule
		for _, m := range r.Match {
			ns += perRange * float64(comparisons(m))
		}
	}
	return ns
}

// code generates the body of decide().
func (s *straight) code() asm.Instructions {
	s.Say("source and destination: which expressions hold")
	s.prologue(s.program, straightContext)
	s.loadMask(asm.R7, s.addrs.srcClass, image.SrcClass, s.addrs.srcDynamic, image.SrcDynamic)
	s.loadMask(asm.R8, s.addrs.dstClass, image.DstClass, s.addrs.dstDynamic, image.DstDynamic)
	for i := range s.program.Rules {
		r := &s.program.Rules[i]
		if _, never := match.Impossible(*r); never {
			continue
		}
		s.rule(i)
		if unconditional(r) { // the verifier rejects unreachable code, and the following rules would be unreachable
			return s.Insns
		}
	}
	s.Say("default")
	s.Add(decided(image.Decision(image.SlotDefault, uint8(s.program.Default)))...)
	return s.Insns
}

// unconditional reports whether a rule matches every packet.
func unconditional(r *ir.Rule) bool {
	return !r.Conditional() && len(r.Src)+len(r.Dst) == 0 && !slices.ContainsFunc(r.Match, func(m ir.Match) bool { return !allows(m) })
}

// allows reports whether every value passes a test. Such a test needs no code.
func allows(m ir.Match) bool {
	return len(m.Values) == 1 && m.Values[0] == ir.Range{First: 0, Last: m.Field.Size() - 1}
}

// loadMask adds code that computes the bits of an address: the bits of its class, and above them a bit for each dynamic set that contains the
// address.
func (s *straight) loadMask(to asm.Register, byClass bool, class int16, sets uint32, dynamic int16) {
	s.Add(asm.Mov.Imm(to, 0))
	if byClass {
		s.Add(
			asm.LoadMem(asm.R1, asm.R6, class, asm.Word),
			asm.And.Imm(asm.R1, int32(image.PowerOfTwo(s.addrs.Count())-1)),
			asm.LSh.Imm(asm.R1, 3),
			asm.LoadMapValue(asm.R2, 0, 0).WithReference(image.Masks),
			asm.Add.Reg(asm.R2, asm.R1),
			asm.LoadMem(to, asm.R2, 0, asm.DWord),
		)
	}
	if sets != 0 {
		s.Add(
			asm.LoadMem(asm.R1, asm.R6, dynamic, asm.Word),
			asm.LSh.Imm(asm.R1, int32(len(s.addrs.exprs))),
			asm.Or.Reg(to, asm.R1),
		)
	}
}

func (s *straight) rule(i int) {
	r := &s.program.Rules[i]
	next := fmt.Sprintf("after%d", i)
	s.Say("rule " + r.Name + ": " + r.Verdict.String())
	if match.Repeats(s.program.Rules, i) {
		s.decided(i, next)
		s.Mark(next)
		return
	}
	if match.Repeats(s.program.Rules, i+1) {
		next = fmt.Sprintf("after%d", i+1) // a packet that fails this rule also fails the next one, and continues after both
	}
	for _, m := range r.Src {
		s.testMask(asm.R7, m, next)
	}
	for _, m := range r.Dst {
		s.testMask(asm.R8, m, next)
	}
	for j, m := range r.Match {
		if !allows(m) {
			s.testField(m, fmt.Sprintf("found%d_%d", i, j), next)
		}
	}
	if match.Repeats(s.program.Rules, i+1) {
		s.decided(i, fmt.Sprintf("repeated%d", i+1))
		s.Mark(fmt.Sprintf("repeated%d", i+1))
		return
	}
	s.decided(i, next)
	s.Mark(next)
}

// decided adds code that returns the decision of a rule whose other tests hold. If the condition of the rule does not hold, the code jumps to next.
func (s *straight) decided(i int, next string) {
	if number, ok := s.conditions.of(i); ok {
		s.searched(&s.program.Rules[i], next)
		s.Add(asm.Mov.Reg(asm.R2, asm.R6), asm.Mov.Imm(asm.R3, int32(number)))
		s.ask(straightContext)
		s.Add(asm.JEq.Imm(asm.R0, 0, next))
	}
	s.Add(decided(s.decisions[i])...)
}

// searched adds code that jumps to next if the payload has been searched and contains none of the patterns of a rule. The first rule with patterns
// starts the search, so later rules usually need no call.
func (s *straight) searched(r *ir.Rule, next string) {
	for _, m := range r.Payload {
		patterns, _, _ := s.conditions.patterns.match(m)
		if patterns == 0 || m.Not {
			continue
		}
		s.Add(
			asm.LoadMem(asm.R1, asm.R6, image.FoundPatterns, asm.DWord),
			asm.LoadImm(asm.R2, int64(patterns), asm.DWord),
			asm.And.Reg(asm.R1, asm.R2),
			asm.JEq.Imm(asm.R1, 0, next),
		)
	}
}

// testMask adds code that jumps to next unless the address matches.
func (s *straight) testMask(mask asm.Register, m ir.AddrMatch, next string) {
	bits := uint64(s.addrs.dynamicBits(m)) << len(s.addrs.exprs)
	if e := s.addrs.Expr(m); e >= 0 {
		bits |= 1 << e
	}
	s.Add(
		asm.LoadImm(asm.R1, int64(bits), asm.DWord),
		asm.And.Reg(asm.R1, mask),
	)
	if m.Not {
		s.Add(asm.JNE.Imm(asm.R1, 0, next))
	} else {
		s.Add(asm.JEq.Imm(asm.R1, 0, next))
	}
}

// testField adds code that jumps to next unless the value is in one of the ranges. found is the label of the following code.
func (s *straight) testField(m ir.Match, found, next string) {
	s.Add(asm.LoadMem(asm.R1, asm.R6, image.FieldOffset(m.Field), asm.Word))
	if t, ok := fewerByMask(m); ok {
		s.Add(asm.And.Imm(asm.R1, int32(t.mask)), asm.JNE.Imm(asm.R1, int32(t.value), next))
		return
	}
	last := len(m.Values) - 1
	for _, r := range m.Values[:last] {
		s.jumpIfIn(r, found)
	}
	s.jumpUnlessIn(m.Values[last], m.Field.Size(), next)
	if last > 0 {
		s.Mark(found)
	}
}

// jumpIfIn adds code that jumps to found if a value is in a range. The code does not test for values below the range. Ranges are tested in ascending
// order, and the test of the last range also finds values that are below an earlier range.
func (s *straight) jumpIfIn(r ir.Range, found string) {
	if r.First == r.Last {
		s.Add(asm.JEq.Imm(asm.R1, int32(r.First), found))
		return
	}
	s.Add(
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Sub.Imm(asm.R2, int32(r.First)),
		asm.JLE.Imm(asm.R2, int32(r.Last-r.First), found),
	)
}

func (s *straight) jumpUnlessIn(r ir.Range, size uint32, next string) {
	if r.First == r.Last {
		s.Add(asm.JNE.Imm(asm.R1, int32(r.First), next))
		return
	}
	if r.First > 0 {
		s.Add(asm.JLT.Imm(asm.R1, int32(r.First), next))
	}
	if r.Last < size-1 {
		s.Add(asm.JGT.Imm(asm.R1, int32(r.Last), next))
	}
}

// part returns the component with the map from each class to its expressions.
func (s *straight) part() component {
	if !s.addrs.srcClass && !s.addrs.dstClass {
		return component{}
	}
	shape := image.Shape{ValueSize: uint32(8 * image.PowerOfTwo(s.addrs.Count())), Entries: 1}
	return component{
		shapes: map[string]image.Shape{image.Masks: shape},
		fill: func(memory map[string][]byte) error {
			for class, truth := range s.addrs.truth {
				binary.NativeEndian.PutUint64(memory[image.Masks][8*class:], truth[0])
			}
			return nil
		},
	}
}
