package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/xdp"
)

// onlyACK leads to general() unless the packet has ACK, and neither SYN, FIN nor RST. A question goes there, too, as it may have a time
// of its own.
func (s *section) onlyACK() {
	const flagsRSTFIN = 0x05
	s.flags(asm.R1)
	s.Add(asm.And.Imm(asm.R1, flagsSYNACK|flagsRSTFIN), asm.JNE.Imm(asm.R1, flagsACK, toGeneral))
	s.notQuestion(toGeneral)
}

// States of a flow (bpf/flow.h), a bit each.
const (
	flowProved      = 1 << 1
	flowEstablished = 1 << 2
	flowLasting     = 1 << 6
)

// What find_open_flow() of bpf/flow.h answers: enum flow_answer.
const (
	flowUnsure = 0
	flowOpen   = 1
)

// open goes on with a segment of an open connection, which protect() of bpf/protect.h passes, and drops one of no connection where it
// can be told by its cookie that protect() would. Any other is left to general().
func (s *section) open(r *rule) {
	protection := s.Program.Rules[r.number].Protect - 1
	found, open := &s.Handshakes[protection], s.newLabel()
	states := int32(flowEstablished | flowLasting)
	if found.Method != ir.MethodRouter { // SYNPROXY may not have started what is proved: judge_proved_behind()
		states |= flowProved
	}
	find := xdp.FindOpenFlow4
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
		asm.JEq.Imm(asm.R0, flowOpen, open),
	)
	if found.Method == ir.MethodHost {
		s.Add(
			asm.JEq.Imm(asm.R0, flowUnsure, toGeneral),
			asm.Mov.Reg(asm.R1, context), asm.Mov.Imm(asm.R2, int32(s.family.value)),
			asm.Mov.Imm(asm.R3, int32(protection)), asm.Mov.Imm(asm.R4, int32(found.Slots[ir.AckInvalid])),
			asm.Call.Label(xdp.RefuseSegment),
			asm.JEq.Imm(asm.R0, 0, toGeneral),
		)
		s.decideAs(xdp.Decision(s.Decisions[r.number]>>8, uint8(ir.Drop)), notAsked) // in the slot of the rule, as protect()
	} else {
		s.Add(asm.Ja.Label(toGeneral))
	}
	s.Mark(open)
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
