package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Offsets in struct flood_state of bpf/flood.h.
const (
	floodUntil    = 0
	floodSpent    = 8
	floodUnproved = 16
	floodIDMask   = 32
)

// What stands beside the number of a flood: bpf/client.h.
const (
	clientDrawn = 1 << 9  // CLIENT_DRAWN
	clientFresh = 1 << 10 // CLIENT_FRESH
)

// clock keeps the time of noCalm, in nanoseconds: nothing behind that asks how much of the frame remains.
const clock = remaining

// askFlood decides a packet if the answer to what a rule asks about a flood is yes, and else goes on. later are the rules behind it.
func (s *section) askFlood(r *ir.Rule, later []rule, decision uint32) {
	next := s.newLabel()
	switch r.Asks {
	case ir.AsksKnown:
		s.knownClient(r.Flood, decision, next)
		s.Mark(next)
	case ir.AsksCalm:
		s.noCalm(r.Flood)
		s.portsFor(later)
	case ir.AsksOpening:
		s.query(r.Flood, decision, next)
		s.Mark(next)
		s.portsFor(later)
	case ir.AsksServed, ir.AsksQuery:
		s.portsFor(later) // no query comes so far: see query
	case ir.AsksProved:
		if p := s.Program.Floods[r.Flood].Protocol; p == packet.A2S || p == packet.RakNet { // likewise
			s.portsFor(later)
			return
		}
		s.short = toGeneral
		if len(later) > 0 && later[0].flood && s.Program.Rules[later[0].number].Asks == ir.AsksStray {
			s.short = s.newLabel()
		}
		s.proved(r.Flood, decision, next)
		s.Mark(next)
		s.portsFor(later)
	case ir.AsksStray:
		s.stray(r.Flood, decision, next)
		s.Mark(next)
		s.portsFor(later)
	case ir.AsksSpent:
		s.spent(r.Flood, decision)
	}
}

// portsFor loads the ports unless the next rule asks about a flood, too: it does not test them.
func (s *section) portsFor(later []rule) {
	if len(later) > 0 && later[0].flood {
		return
	}
	s.loadPorts()
}

// knownClient jumps to next unless the packet is of a known client: known_client() of bpf/client.h. One in ir.KnownShare is drawn for the charge to
// the client's limit. One that exceeds it is for general(), which finds that the client is known no more.
func (s *section) knownClient(flood int, decision uint32, next string) {
	s.replied(next, func(none string) {
		drawn, known, others := s.newLabel(), s.newLabel(), none
		atOnce := s.Program.Floods[flood].Protocol == packet.WireGuard // becomes_known()
		if atOnce {
			others = s.newLabel()
		}
		s.Add(
			asm.JNE.Imm(asm.R0, image.ReplyClient, others),
			asm.FnGetPrandomU32.Call(), asm.And.Imm(asm.R0, ir.KnownShare-1), asm.JEq.Imm(asm.R0, 0, drawn),
		)
		s.Mark(known)
		if s.Program.Floods[flood].Protocol == packet.RakNet {
			s.noSecondRequest()
		}
		s.decideAs(decision, notAsked)
		s.Mark(drawn)
		s.askFrame(image.KnownInFrame, flood|clientDrawn)
		s.Add(asm.JNE.Imm(asm.R0, 0, known), asm.Ja.Label(toGeneral))
		if atOnce {
			s.Mark(others)
			s.Add(asm.JNE.Imm(asm.R0, image.ReplyClientNew, none))
			s.askFrame(image.KnownInFrame, flood|clientFresh)
			s.Add(asm.JNE.Imm(asm.R0, 0, known), asm.Ja.Label(none))
		}
	})
}

// askFrame calls a function of bpf/segment.h with the frame and the number of a flood.
func (s *section) askFrame(function string, flood int) {
	s.Add(
		asm.Mov.Reg(asm.R1, context), asm.Mov.Imm(asm.R2, int32(s.family.value)), asm.Mov.Imm(asm.R3, int32(flood)), asm.Call.Label(function),
	)
}

// noCalm goes on if there surely is a flood: surely_active() of bpf/flood.h. Else general() charges the packet.
func (s *section) noCalm(flood int) {
	s.notQuestion(toGeneral) // which may have a time of its own
	s.coarseTime(toGeneral)
	s.Add(
		asm.LoadMapValue(asm.R1, 0, floodState(flood)+floodUntil).WithReference(image.FloodStates), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.LoadImm(asm.R2, image.ActiveTime-image.ActiveRenew, asm.DWord), asm.Add.Reg(asm.R2, asm.R3),
		asm.JLE.Reg(asm.R1, asm.R2, toGeneral), asm.Mov.Reg(clock, asm.R3),
	)
}

// spent decides if the limit for all clients that are not known is exceeded for a time, as is_spent() of bpf/flood.h has noted. Else general()
// asks. By the coarse clock that time may be a tick longer. noCalm has come before.
func (s *section) spent(flood int, decision uint32) {
	s.Add(
		asm.LoadMapValue(asm.R1, 0, floodState(flood)+floodSpent).WithReference(image.FloodStates), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JLE.Reg(asm.R1, clock, toGeneral),
	)
	s.decideAs(decision, notAsked)
}

func floodState(number int) uint32 { return uint32(number) * image.FloodStateSize }
