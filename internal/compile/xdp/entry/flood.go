// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Offsets of members in struct flood_state of bpf/flood.h.
const (
	floodUntil    = 0
	floodSpent    = 8
	floodUnproved = 16
	floodIDMask   = 32
)

// Flags of bpf/client.h that are combined with the number of a flood.
const (
	clientDrawn = 1 << 9  // CLIENT_DRAWN
	clientFresh = 1 << 10 // CLIENT_FRESH
)

// clock is the register with the time that noCalm has read, in nanoseconds. Code after noCalm does not need the number of remaining bytes.
const clock = remaining

// askFlood decides a packet if the answer to the rule's question about a flood is yes. Otherwise the packet continues. later are the rules after this
// one.
func (s *section) askFlood(r *ir.Rule, later []rule, decision uint32) {
	next := s.newLabel()
	switch r.Asks {
	case ir.AsksKnown:
		answered := uint32(0)
		if s.nextAsks(later, ir.AsksAnswered) {
			answered = s.Decisions[later[0].number]
		}
		s.knownClient(r.Flood, decision, answered, next)
		s.Mark(next)
	case ir.AsksAnswered: // the code of this rule is in knownClient
		s.portsFor(later)
	case ir.AsksCalm:
		s.noCalm(r.Flood)
		s.portsFor(later)
	case ir.AsksOpening:
		s.query(r.Flood, decision, next)
		s.Mark(next)
		s.portsFor(later)
	case ir.AsksServed, ir.AsksQuery:
		s.portsFor(later) // query() has handled all packets that match this rule
	case ir.AsksProved:
		if p := s.Program.Floods[r.Flood].Protocol; p == packet.A2S || p == packet.RakNet { // query() has handled all of these packets, too
			s.portsFor(later)
			return
		}
		s.short = toGeneral
		if s.nextAsks(later, ir.AsksStray) || s.nextAsks(later, ir.AsksAgain) && s.nextAsks(later[1:], ir.AsksStray) {
			s.short = s.newLabel()
		}
		s.proved(r.Flood, decision, next)
		s.Mark(next)
		s.portsFor(later)
	case ir.AsksAgain:
		s.again(r.Flood, decision, next)
		if s.nextAsks(later, ir.AsksStray) {
			s.againIfShort(r.Flood, decision)
		}
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

// nextAsks reports whether the first of the later rules asks the question q.
func (s *section) nextAsks(later []rule, q ir.FloodQuestion) bool {
	return len(later) > 0 && later[0].flood && s.Program.Rules[later[0].number].Asks == q
}

// portsFor loads the ports, unless the next rule also has a question about a flood. Such a rule does not test the ports.
func (s *section) portsFor(later []rule) {
	if len(later) > 0 && later[0].flood {
		return
	}
	s.loadPorts()
}

// knownClient jumps to next unless the packet is from a known client: known_client() of bpf/client.h. One packet in ir.KnownShare, chosen at random,
// is charged to the client's limit. A packet that exceeds the limit goes to general(), which removes the client from the known clients. The next rule
// may pass a packet of a new client that the service has answered. answered is the decision of that rule.
func (s *section) knownClient(flood int, decision, answered uint32, next string) {
	s.replied(next, s.Program.Floods[flood].Again != nil, func(none string) {
		drawn, known, others := s.newLabel(), s.newLabel(), none
		atOnce := s.Program.Floods[flood].Protocol == packet.WireGuard // becomes_known()
		if atOnce || answered != 0 {
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
		if others == none {
			return
		}
		s.Mark(others)
		s.Add(asm.JNE.Imm(asm.R0, image.ReplyClientNew, none))
		if atOnce {
			s.askFrame(image.KnownInFrame, flood|clientFresh)
			s.Add(asm.JNE.Imm(asm.R0, 0, known))
		}
		if answered != 0 {
			s.askFrame(image.GoesOnInFrame, flood)
			s.Add(asm.JEq.Imm(asm.R0, 0, none))
			s.decideAs(answered, notAsked)
			return
		}
		s.Add(asm.Ja.Label(none))
	})
}

// again passes packets that repeat a refused packet and are within the limits. All other packets jump to next, which must follow this code. The code
// does the work of came_again() of bpf/newcomer.h without a call, so that a flood costs little. It records packets that repeat no other.
// comes_again() of the same header tests the limits. The code of knownClient and of noCalm must precede it, because it needs the hash of the flow and
// the time that they have stored.
func (s *section) again(flood int, decision uint32, next string) {
	const word, age, noted, seen = asm.R4, asm.R0, asm.R2, asm.R3
	const bits, tagBits, timeBits = image.NewcomerBits, image.NewcomerTagBits, image.NewcomerTimeBits
	note := s.newLabel()
	s.Add(
		asm.LoadMem(asm.R1, asm.RFP, flowAt, asm.DWord), asm.Mov.Reg(noted, asm.R1), asm.RSh.Imm(noted, 64-bits-tagBits-timeBits),
		asm.And.Imm(noted, (1<<tagBits-1)<<timeBits), asm.Or.Imm(noted, 1<<(tagBits+timeBits)),
		asm.Mov.Reg(age, clock), asm.RSh.Imm(age, image.NewcomerUnit), asm.Mov.Reg(seen, age), asm.And.Imm(seen, ir.AgainTimes-1), asm.Or.Reg(noted, seen),
		asm.RSh.Imm(asm.R1, 64-bits-1), asm.And.Imm(asm.R1, 1<<(bits+1)-2),
		asm.LoadMapValue(seen, 0, image.NewcomersSeen).WithReference(image.Newcomers), asm.Add.Reg(seen, asm.R1),
		asm.LoadMem(word, seen, 0, asm.Half), asm.Sub.Reg(age, word), asm.And.Imm(age, ir.AgainTimes-1),
		asm.Xor.Reg(word, noted), asm.JGT.Imm(word, ir.AgainTimes-1, note), asm.JGT.Imm(age, ir.AgainMost, note), asm.JEq.Imm(age, 0, next),
		asm.LoadMapValue(asm.R1, 0, uint32(8*flood)).WithReference(image.Newcomers), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JGT.Reg(asm.R1, clock, next),
	)
	s.askFrame(image.AgainInFrame, flood)
	s.Add(asm.JEq.Imm(asm.R0, 0, next))
	s.decideAs(decision, notAsked)
	s.Mark(note)
	s.Add(asm.StoreMem(seen, 0, noted, asm.Half))
}

// againIfShort does the same as again, for packets that are too short for the test for strays. If such a packet repeats no other, it is a stray.
func (s *section) againIfShort(flood int, decision uint32) {
	short, stray := s.short, s.newLabel()
	s.short = stray
	s.apart = append(s.apart, func() {
		s.Mark(short)
		s.again(flood, decision, stray)
		s.Add(asm.Ja.Label(stray))
	})
}

// askFrame calls a function of bpf/segment.h with the frame and the number of a flood as arguments.
func (s *section) askFrame(function string, flood int) {
	s.Add(
		asm.Mov.Reg(asm.R1, context), asm.Mov.Imm(asm.R2, int32(s.family.value)), asm.Mov.Imm(asm.R3, int32(flood)), asm.Call.Label(function),
	)
}

// noCalm lets a packet continue only if there is certainly a flood: surely_active() of bpf/flood.h. Otherwise the packet goes to general(), which
// charges it.
func (s *section) noCalm(flood int) {
	s.notQuestion(toGeneral) // a question may set another time
	s.coarseTime(toGeneral)
	s.Add(
		asm.LoadMapValue(asm.R1, 0, floodState(flood)+floodUntil).WithReference(image.FloodStates), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.LoadImm(asm.R2, image.ActiveTime-image.ActiveRenew, asm.DWord), asm.Add.Reg(asm.R2, asm.R3),
		asm.JLE.Reg(asm.R1, asm.R2, toGeneral), asm.Mov.Reg(clock, asm.R3),
	)
}

// spent decides a packet if the limit for all unknown clients is certainly exceeded: is_spent() of bpf/flood.h has recorded a time until which it is.
// Otherwise the packet goes to general(). The coarse clock may prolong this by one tick. The code of noCalm must precede it.
func (s *section) spent(flood int, decision uint32) {
	s.Add(
		asm.LoadMapValue(asm.R1, 0, floodState(flood)+floodSpent).WithReference(image.FloodStates), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JLE.Reg(asm.R1, clock, toGeneral),
	)
	s.decideAs(decision, notAsked)
}

func floodState(number int) uint32 { return uint32(number) * image.FloodStateSize }
