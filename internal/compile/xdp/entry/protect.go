// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// States of a flow in bpf/flow.h. Each is a bit.
const (
	flowProved      = 1 << 1
	flowEstablished = 1 << 2
	flowLasting     = 1 << 6
)

// The results of decide_known() and decide_unknown() of bpf/segment.h: enum segment_outcome. find_open_flow4() of bpf/flow.h also returns
// segmentOpen.
const (
	segmentOther = 0
	segmentOpen  = 1 // the segment passes; with any other number it is dropped, and that is counted
)

// Shifts of the fields in the last argument of these functions, as in bpf/segment.h.
const (
	segmentProtection = 8
	segmentSlot       = 32
)

// protected adds code that decides a packet to a protected service. The packet carries no question. A segment of an open connection passes. A segment
// that belongs to no connection is dropped if no cookie was sent for it, or if its cookie is wrong. protect() of bpf/protect.h would decide in the
// same way. Any other packet goes to protect().
func (s *section) protected(r *rule) {
	const flagsRSTFIN = 0x05
	protection := s.Program.Rules[r.number].Protect - 1
	decision, found := s.Decisions[r.number], &s.Handshakes[protection]
	open, other := s.newLabel(), s.newLabel()
	s.flags(asm.R1)
	s.Add(asm.And.Imm(asm.R1, flagsSYNACK|flagsRSTFIN), asm.JNE.Imm(asm.R1, flagsACK, other))
	if found.Method == ir.MethodHost {
		known, unknown, decided := s.newLabel(), s.newLabel(), s.newLabel()
		s.refuse(protection, found, decision, known, unknown, other)
		s.Mark(known)
		s.decideSegment(image.DecideKnown, protection, found)
		s.Add(asm.Ja.Label(decided))
		s.Mark(unknown)
		s.decideSegment(image.DecideUnknown, protection, found)
		s.Mark(decided)
		s.Add(asm.JEq.Imm(asm.R0, segmentOpen, open), asm.JEq.Imm(asm.R0, segmentOther, other))
		s.decideAs(image.Decision(decision>>8, uint8(ir.Drop)), notAsked) // counted in the slot of the rule, as by protect()
	} else {
		s.findFlow(found)
		s.Add(asm.JEq.Imm(asm.R0, segmentOpen, open))
	}
	s.Mark(other)
	if found.Method == ir.MethodHost {
		s.usualSYN(protection, decision)
	}
	s.protectAs(decision)
	s.Add(asm.Call.Label(image.ProtectSegment), asm.Return())
	s.Mark(open)
	s.decideAs(image.Decision(decision>>8, uint8(ir.Pass)), notAsked)
}

// usualSYN adds code that answers a SYN without other flags, if answer_usual_syn() or answer_plain_syn() can do so.
func (s *section) usualSYN(protection int, decision uint32) {
	const usualHeader = 40 // bytes, USUAL_SYN of bpf/usualsyn.h
	other, plain, asked := s.newLabel(), s.newLabel(), s.newLabel()
	s.flags(asm.R1)
	s.Add(asm.JNE.Imm(asm.R1, flagsSYN, other))
	s.ofProtection(protection, other)
	s.protectAs(decision)
	s.Add(
		asm.LoadMem(asm.R0, base, s.family.l4+offsetAt, asm.Byte), asm.JLT.Imm(asm.R0, usualHeader<<2, plain),
		asm.Call.Label(image.AnswerUsualSYN), asm.Ja.Label(asked),
	)
	s.Mark(plain)
	s.Add(asm.Call.Label(image.AnswerPlainSYN))
	s.Mark(asked)
	s.Add(asm.JEq.Imm(asm.R0, 0, other), asm.Return())
	s.Mark(other)
}

// ofProtection adds code that loads the addresses of a protection's state and configuration into r4 and r5. If there are none, the code jumps to
// otherwise.
func (s *section) ofProtection(protection int, otherwise string) {
	if len(s.Program.Protections) == 1 { // a map with one value needs no lookup
		s.Add(
			asm.LoadMapValue(asm.R4, 0, 0).WithReference(image.ProtectionStates), asm.LoadMapValue(asm.R5, 0, 0).WithReference(image.Protections),
		)
		return
	}
	const state = remaining // function calls preserve this register, and its value is no longer needed
	s.element(image.ProtectionStates, protection, otherwise)
	s.Add(asm.Mov.Reg(state, asm.R0))
	s.element(image.Protections, protection, otherwise)
	s.Add(asm.Mov.Reg(asm.R4, state), asm.Mov.Reg(asm.R5, asm.R0))
}

// protectAs adds code that loads the arguments of functions that act for a protection: the context, the family and the decision.
func (s *section) protectAs(decision uint32) {
	s.Add(asm.Mov.Reg(asm.R1, context), asm.Mov.Imm(asm.R2, int32(s.family.value)), asm.Mov.Imm(asm.R3, int32(decision)))
}

// decideSegment adds code that sets r0 to the decision about a segment, for a protection with MethodHost. function is DecideKnown or DecideUnknown.
// The hash of the flow is in the register flow.
func (s *section) decideSegment(function string, protection int, found *ir.Handshake) {
	what := uint64(found.Slots[ir.AckInvalid])<<segmentSlot | uint64(protection)<<segmentProtection | openStates(found)
	s.Add(
		asm.Mov.Reg(asm.R1, context), asm.Mov.Imm(asm.R2, int32(s.family.value)), asm.Mov.Reg(asm.R3, flow),
		asm.LoadImm(asm.R4, int64(what), asm.DWord), asm.Call.Label(function),
	)
}

// findFlow adds code that sets r0 to the result of the lookup of the packet's flow in the flow table.
func (s *section) findFlow(found *ir.Handshake) {
	s.ends(asm.R1, asm.R2)
	s.Add(asm.Mov.Imm(asm.R3, int32(openStates(found))), asm.Call.Label(s.ofFamily(image.FindOpenFlow4, image.FindOpenFlow6)))
}

// openStates returns the states of flows whose segments pass.
func openStates(found *ir.Handshake) uint64 {
	if found.Method == ir.MethodRouter { // SYNPROXY may not have opened a proved flow yet: judge_proved_behind()
		return flowEstablished | flowLasting
	}
	return flowEstablished | flowLasting | flowProved
}

// ofFamily returns the function for the section's family.
func (s *section) ofFamily(four, six string) string {
	if s.v4() {
		return four
	}
	return six
}

// ends adds code that loads both IPv4 addresses, or a hash of both IPv6 addresses, and both ports.
func (s *section) ends(addresses, ports asm.Register) {
	if s.v4() {
		s.Add(asm.LoadMem(addresses, base, s.family.source, asm.DWord), asm.HostTo(asm.BE, addresses, asm.DWord))
	} else {
		s.address(asm.R1, asm.R2, s.family.source)
		s.address(asm.R3, asm.R4, s.family.dest)
		s.Add(asm.Call.Label(image.Addresses6), asm.Mov.Reg(addresses, asm.R0))
	}
	s.Add(asm.LoadMem(ports, base, s.family.l4, asm.Word), asm.HostTo(asm.BE, ports, asm.Word))
}
