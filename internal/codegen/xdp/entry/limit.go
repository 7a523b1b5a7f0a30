package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// mostAsks is how many rules for general() may stand behind a limit for the entry to charge it.
const mostAsks = 8

// generals are the rules that general() decides. A limit that is left to it is not among them: there are too many of them, then.
func generals(rules []rule) (list []rule) {
	for _, r := range rules {
		if r.general || r.protect {
			list = append(list, r)
		}
	}
	return list
}

// Offsets on the stack: struct charged of bpf/packet.h.
const (
	charged    = -48
	chargedSrc = charged + 8
	chargedDst = charged + 24
)

// exceeds leads to next unless the packet exceeds one of the rule's limits, and charges it to those that it does not. A packet
// must not be charged twice: one that a later rule may leave to general() goes there before, and so does a question, which is
// not charged.
func (s *section) exceeds(r *rule, asks []rule, next string) {
	if len(r.dynamic) > 0 {
		s.loadPorts()
	}
	for i := range asks {
		other := s.newLabel()
		for _, m := range asks[i].match {
			s.test(m, other)
		}
		s.Add(asm.Ja.Label(toGeneral))
		s.Mark(other)
	}
	s.notQuestion(toGeneral)
	over := s.newLabel()
	for _, number := range r.over {
		s.charge(number)
		s.Add(asm.JNE.Imm(asm.R0, 0, over))
	}
	s.Add(asm.Ja.Label(next))
	s.Mark(over)
}

// charge calls charge_limit() of bpf/limit.h, which leaves in r0 whether a limit is exceeded.
func (s *section) charge(number int) {
	const keep, lengthShift = 2, 8 // TRAIT_KEEP and LENGTH_SHIFT
	l := &s.Program.Limits[number]
	s.Add(asm.Mov.Imm(asm.R4, 0), asm.StoreMem(asm.RFP, charged, asm.R4, asm.DWord))
	s.endpoint(chargedSrc, s.family.source, l.Src)
	s.endpoint(chargedDst, s.family.dest, l.Dst)
	s.Add(asm.Mov.Imm(asm.R3, keep|int32(s.family.value)))
	if l.Bits {
		s.loadLength(asm.R1, s.family)
		s.Add(asm.LSh.Imm(asm.R1, lengthShift), asm.Or.Reg(asm.R3, asm.R1))
	}
	s.Add(
		asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, charged),
		asm.Mov.Imm(asm.R2, int32(number)),
		asm.Call.Label(xdp.ChargeLimit),
	)
}

// endpoint stores an address, or the zero in r4 where the limit does not ask for it.
func (s *section) endpoint(to, at int16, asked *ir.Prefixes) {
	if asked == nil {
		s.Add(asm.StoreMem(asm.RFP, to, asm.R4, asm.DWord), asm.StoreMem(asm.RFP, to+8, asm.R4, asm.DWord))
		return
	}
	s.address(asm.R1, asm.R2, at)
	s.Add(asm.StoreMem(asm.RFP, to, asm.R1, asm.DWord), asm.StoreMem(asm.RFP, to+8, asm.R2, asm.DWord))
}
