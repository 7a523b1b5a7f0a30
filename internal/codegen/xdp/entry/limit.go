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
			s.test(s.value(m.Field), m.Values, other)
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

// charge calls charge_addresses() of bpf/limit.h, which leaves in r0 whether a limit is exceeded.
func (s *section) charge(number int) {
	const keep, lengthShift = 2, 8 // TRAIT_KEEP and LENGTH_SHIFT
	l := &s.Program.Limits[number]
	s.endpoint(asm.R1, asm.R2, s.family.source, l.Src)
	s.endpoint(asm.R3, asm.R4, s.family.dest, l.Dst)
	s.Add(asm.LoadImm(asm.R5, int64(number)<<32|keep|int64(s.family.value), asm.DWord))
	if l.Bits {
		s.loadLength(asm.R0, s.family)
		s.Add(asm.LSh.Imm(asm.R0, lengthShift), asm.Or.Reg(asm.R5, asm.R0))
	}
	s.Add(asm.Call.Label(xdp.ChargeAddresses))
}

// endpoint loads an address, or zeros where the limit does not ask for it.
func (s *section) endpoint(hi, lo asm.Register, at int16, asked *ir.Prefixes) {
	if asked == nil {
		s.Add(asm.Mov.Imm(hi, 0), asm.Mov.Imm(lo, 0))
		return
	}
	s.address(hi, lo, at)
}
