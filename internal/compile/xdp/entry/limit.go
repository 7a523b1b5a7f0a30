package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// mostAsks is the largest number of rules for general() behind a limit with which the entry still charges the limit.
const mostAsks = 8

// generals are the rules that general() may decide, without limits that are left to it, of which there are too many.
func generals(rules []rule) (list []rule) {
	for _, r := range rules {
		if r.general || r.mss != nil || r.flood || r.protect && len(r.over) > 0 {
			list = append(list, r)
		}
	}
	return list
}

// exceeds jumps to next unless the packet exceeds one of the rule's limits, and charges it to the limits that it does
// not exceed. A packet must not be charged twice. So a packet that a later rule may leave to general() goes there
// first, and so does a question, which is not charged.
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

// charge calls charge_hash() of bpf/limit.h, which sets r0 to whether a limit is exceeded.
func (s *section) charge(number int) {
	l := &s.Limits[number]
	s.hashPrefixes(l)
	s.Add(
		asm.Mov.Reg(asm.R1, hash),
		asm.Mov.Reg(asm.R2, hash), asm.RSh.Imm(asm.R2, image.LimitTime), asm.And.Imm(asm.R2, int32(l.Mask)),
	)
	if l.Base > 0 {
		s.Add(asm.Add.Imm(asm.R2, int32(l.Base)))
	}
	what := int64(number)<<32 | int64(l.Left)<<8 | int64(l.Right)
	s.Add(asm.LoadImm(asm.R5, what, asm.DWord))
	if l.Bits != 0 {
		s.sureOfBits(l)
	} else {
		s.Add(asm.LoadImm(asm.R3, sureOfPackets(l), asm.DWord))
	}
	s.Add(asm.LoadImm(asm.R4, int64(l.Fresh), asm.DWord), asm.Call.Label(image.ChargeHash))
}

// sureOfPackets is the largest debt with which a packet may still be within a limit of packets, by the coarse clock, or
// ~0 to skip that test: surely_exceeded() of bpf/limit.h.
func sureOfPackets(l *image.LimitInfo) int64 {
	sure := l.Units(image.LimitSureDebt)
	if l.Most <= sure {
		return -1
	}
	cost := l.Cost >> image.LimitFraction // without a remainder
	most := l.Most
	if cost > sure {
		most += sure
	}
	return max(int64(most)-int64(cost), int64(sure))
}

// sureOfBits computes the same for a limit of bits into r3, and adds the length to r5. It changes r0 and r4.
func (s *section) sureOfBits(l *image.LimitInfo) {
	const lengthShift = 16
	sure, small, done := l.Units(image.LimitSureDebt), s.newLabel(), s.newLabel()
	s.loadLength(asm.R0, s.family)
	s.Add(asm.Mov.Reg(asm.R4, asm.R0), asm.LSh.Imm(asm.R4, lengthShift), asm.Or.Reg(asm.R5, asm.R4))
	if l.Most <= sure {
		s.Add(asm.LoadImm(asm.R3, -1, asm.DWord))
		return
	}
	s.Add( // the cost, as cost_of() of bpf/limit.h
		asm.LoadImm(asm.R4, int64(8*l.Cost), asm.DWord), asm.Mul.Reg(asm.R0, asm.R4),
		asm.Add.Imm(asm.R0, 1<<image.LimitFraction-1), asm.RSh.Imm(asm.R0, image.LimitFraction),
		asm.LoadImm(asm.R3, int64(l.Most), asm.DWord), asm.LoadImm(asm.R4, int64(sure), asm.DWord),
		asm.JLE.Reg(asm.R0, asm.R4, small), asm.Add.Reg(asm.R3, asm.R4),
	)
	s.Mark(small)
	s.Add(asm.Sub.Reg(asm.R3, asm.R0), asm.JSGE.Reg(asm.R3, asm.R4, done), asm.Mov.Reg(asm.R3, asm.R4))
	s.Mark(done)
}
