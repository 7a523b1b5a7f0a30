package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/xdp"
)

// open leads to general() unless the packet is a segment of an open connection, which protect() of bpf/protect.h passes. One with
// SYN, FIN or RST, or without ACK, is not looked up, and neither is a question, which may have a time of its own.
func (s *section) open(r *rule) {
	protection := s.Program.Rules[r.number].Protect - 1
	proved := int32(1) // enough, unless SYNPROXY may not have started the connection yet: judge_proved_behind()
	if s.Handshakes[protection].Method == ir.MethodRouter {
		proved = 0
	}
	const flagsRSTFIN = 0x05
	s.flags(asm.R1)
	s.Add(asm.And.Imm(asm.R1, flagsSYNACK|flagsRSTFIN), asm.JNE.Imm(asm.R1, flagsACK, toGeneral))
	s.notQuestion(toGeneral)
	if s.family.value == packet.FamilyIPv4 {
		s.Add(
			asm.LoadMem(asm.R1, base, s.family.source, asm.Word), asm.HostTo(asm.BE, asm.R1, asm.Word), asm.LSh.Imm(asm.R1, 32),
			asm.LoadMem(asm.R2, base, s.family.dest, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word), asm.Or.Reg(asm.R1, asm.R2),
			asm.Call.Label(xdp.Addresses4),
		)
	} else {
		s.address(asm.R1, asm.R2, s.family.source)
		s.address(asm.R3, asm.R4, s.family.dest)
		s.Add(asm.Call.Label(xdp.Addresses6))
	}
	s.Add(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.LoadMem(asm.R2, base, s.family.l4, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word), // both ports
		asm.Mov.Imm(asm.R3, proved),
		asm.Call.Label(xdp.IsOpenFlow),
		asm.JEq.Imm(asm.R0, 0, toGeneral),
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
