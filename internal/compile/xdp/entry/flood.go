package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Offsets in struct flood_state of bpf/flood.h.
const (
	floodUntil = 0
	floodSpent = 8
)

// knownClient jumps to next unless the packet is of a known client: known_client() of bpf/flood.h. One in ir.KnownShare is drawn for the charge to
// the client's limit. One that exceeds it is for general(), which finds that the client is known no more.
func (s *section) knownClient(flood int, decision uint32, next string) {
	s.replied(next, func(none string) {
		drawn, known := s.newLabel(), s.newLabel()
		s.Add(
			asm.JNE.Imm(asm.R0, image.ReplyClient, none),
			asm.FnGetPrandomU32.Call(), asm.And.Imm(asm.R0, ir.KnownShare-1), asm.JEq.Imm(asm.R0, 0, drawn),
		)
		s.Mark(known)
		s.decideAs(decision, notAsked)
		s.Mark(drawn)
		s.Add(
			asm.Mov.Reg(asm.R1, context), asm.Mov.Imm(asm.R2, int32(s.family.value)), asm.Mov.Imm(asm.R3, int32(flood)),
			asm.Call.Label(image.DrawnClient), asm.JNE.Imm(asm.R0, 0, known), asm.Ja.Label(toGeneral),
		)
	})
}

// noCalm goes on if there surely is a flood: surely_active() of bpf/flood.h. Else general() charges the packet.
func (s *section) noCalm(flood int) {
	s.notQuestion(toGeneral) // which may have a time of its own
	s.coarseTime(toGeneral)
	s.Add(
		asm.LoadMapValue(asm.R1, 0, floodState(flood)+floodUntil).WithReference(image.FloodStates), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.LoadImm(asm.R2, image.ActiveTime-image.ActiveRenew, asm.DWord), asm.Add.Reg(asm.R2, asm.R3),
		asm.JLE.Reg(asm.R1, asm.R2, toGeneral),
	)
	s.loadPorts()
}

// spent decides if the limit for all clients that are not known is exceeded for a time, as is_spent() of bpf/flood.h has noted. Else general()
// asks. By the coarse clock that time may be a tick longer.
func (s *section) spent(flood int, decision uint32) {
	s.notQuestion(toGeneral)
	s.coarseTime(toGeneral)
	s.Add(
		asm.LoadMapValue(asm.R1, 0, floodState(flood)+floodSpent).WithReference(image.FloodStates), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JLE.Reg(asm.R1, asm.R3, toGeneral),
	)
	s.decideAs(decision, notAsked)
}

func floodState(number int) uint32 { return uint32(number) * image.FloodStateSize }
