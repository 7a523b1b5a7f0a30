package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/xdp"
)

// States of a flow (bpf/flow.h), a bit each.
const (
	flowProved      = 1 << 1
	flowEstablished = 1 << 2
	flowLasting     = 1 << 6
)

// What find_open_flow() of bpf/flow.h answers: enum flow_answer. Any other number is the hash of a flow that is not known.
const (
	flowUnsure = 0
	flowOpen   = 1
)

// protected ends with what is done with a packet that a protection is for, and that carries no question: a segment of an open
// connection passes, one of no connection is dropped where it can be told that protect() of bpf/protect.h would, as no cookie was sent for it
// or its cookie is wrong, and any other goes there.
func (s *section) protected(r *rule) {
	const flagsRSTFIN = 0x05
	protection := s.Program.Rules[r.number].Protect - 1
	decision, found := s.Decisions[r.number], &s.Handshakes[protection]
	open, other := s.newLabel(), s.newLabel()
	s.flags(asm.R1)
	s.Add(asm.And.Imm(asm.R1, flagsSYNACK|flagsRSTFIN), asm.JNE.Imm(asm.R1, flagsACK, other))
	s.findFlow(found)
	s.Add(asm.JEq.Imm(asm.R0, flowOpen, open))
	if found.Method == ir.MethodHost {
		s.Add(
			asm.JEq.Imm(asm.R0, flowUnsure, other),
			asm.Mov.Reg(asm.R5, asm.R0), // the hash
			asm.Mov.Reg(asm.R1, context), asm.Mov.Imm(asm.R2, int32(s.family.value)),
			asm.Mov.Imm(asm.R3, int32(protection)), asm.Mov.Imm(asm.R4, int32(found.Slots[ir.AckInvalid])),
			asm.Call.Label(xdp.RefuseSegment),
			asm.JEq.Imm(asm.R0, 0, other),
		)
		s.decideAs(xdp.Decision(decision>>8, uint8(ir.Drop)), notAsked) // in the slot of the rule, as after protect()
	}
	s.Mark(other)
	if found.Method == ir.MethodHost {
		s.usualSYN(protection, decision)
	}
	s.protectAs(decision)
	s.Add(asm.Call.Label(xdp.ProtectSegment), asm.Return())
	s.Mark(open)
	s.decideAs(xdp.Decision(decision>>8, uint8(ir.Pass)), notAsked)
}

// usualSYN ends with the answer to a SYN without other flags, where that can be written here.
func (s *section) usualSYN(protection int, decision uint32) {
	other := s.newLabel()
	s.flags(asm.R1)
	s.Add(asm.JNE.Imm(asm.R1, flagsSYN, other))
	s.protectAs(decision)
	s.Add(
		asm.Mov.Imm(asm.R4, int32(protection)),
		asm.Call.Label(xdp.AnswerUsualSYN),
		asm.JEq.Imm(asm.R0, 0, other),
		asm.Return(),
	)
	s.Mark(other)
}

// protectAs loads what functions take that do what a protection says: the context, the family and the decision.
func (s *section) protectAs(decision uint32) {
	s.Add(asm.Mov.Reg(asm.R1, context), asm.Mov.Imm(asm.R2, int32(s.family.value)), asm.Mov.Imm(asm.R3, int32(decision)))
}

// findFlow leaves in r0 what the table of flows says of the packet.
func (s *section) findFlow(found *ir.Handshake) {
	states, find := int32(flowEstablished|flowLasting), xdp.FindOpenFlow4
	if found.Method != ir.MethodRouter { // SYNPROXY may not have started what is proved: judge_proved_behind()
		states |= flowProved
	}
	if s.family.value == packet.FamilyIPv4 {
		s.Add(asm.LoadMem(asm.R1, base, s.family.source, asm.DWord), asm.HostTo(asm.BE, asm.R1, asm.DWord)) // both addresses
	} else {
		find = xdp.FindOpenFlow6
		s.address(asm.R1, asm.R2, s.family.source)
		s.address(asm.R3, asm.R4, s.family.dest)
		s.Add(asm.Call.Label(xdp.Addresses6), asm.Mov.Reg(asm.R1, asm.R0))
	}
	s.Add(
		asm.LoadMem(asm.R2, base, s.family.l4, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word), // both ports
		asm.Mov.Imm(asm.R3, states),
		asm.Call.Label(find),
	)
}

// notQuestion jumps when the frame may carry a question.
func (g *generator) notQuestion(otherwise string) {
	if g.Questions {
		g.Add(
			asm.LoadMem(asm.R1, context, ctxMeta, asm.Word),
			asm.LoadMem(asm.R2, context, ctxData, asm.Word),
			asm.JLT.Reg(asm.R1, asm.R2, otherwise),
		)
	}
}
