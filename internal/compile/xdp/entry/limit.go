// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// mostAsks is a number of rules. If more of the later rules may be decided by general(), the entry leaves a rule with limits to general(), too.
const mostAsks = 8

// generals returns the rules that general() may decide. It does not include rules with limits that are left to general() only because of mostAsks.
func generals(rules []rule) (list []rule) {
	for _, r := range rules {
		if r.general || r.mss != nil || r.flood || r.protect && len(r.over) > 0 {
			list = append(list, r)
		}
	}
	return list
}

// exceeds jumps to next unless the packet exceeds one of the rule's limits. It charges the packet to the limits that the packet does not exceed. A
// packet must not be charged twice. So a packet that a later rule may leave to general() goes to general() before it is charged. The same applies to
// a packet with a question, which must not be charged.
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

// charge adds a call of charge_hash() of bpf/limit.h. Then r0 is not 0 if the limit is exceeded.
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

// sureOfPackets returns the largest debt with which a packet may still be within a limit of packets, if the time is that of the coarse clock. It
// returns ~0 if this test must be skipped: surely_exceeded() of bpf/limit.h.
func sureOfPackets(l *image.LimitInfo) int64 {
	sure := l.Units(image.LimitSureDebt)
	if l.Most <= sure {
		return -1
	}
	cost := l.Cost >> image.LimitFraction // without the fraction
	most := l.Most
	if cost > sure {
		most += sure
	}
	return max(int64(most)-int64(cost), int64(sure))
}

// sureOfBits adds code that computes the same as sureOfPackets for a limit of bits, into r3. The code also adds the length to r5. It changes r0 and
// r4.
func (s *section) sureOfBits(l *image.LimitInfo) {
	const lengthShift = 16
	sure, small, done := l.Units(image.LimitSureDebt), s.newLabel(), s.newLabel()
	s.loadLength(asm.R0, s.family)
	s.Add(asm.Mov.Reg(asm.R4, asm.R0), asm.LSh.Imm(asm.R4, lengthShift), asm.Or.Reg(asm.R5, asm.R4))
	if l.Most <= sure {
		s.Add(asm.LoadImm(asm.R3, -1, asm.DWord))
		return
	}
	s.Add( // the cost of the packet, as in cost_of() of bpf/limit.h
		asm.LoadImm(asm.R4, int64(8*l.Cost), asm.DWord), asm.Mul.Reg(asm.R0, asm.R4),
		asm.Add.Imm(asm.R0, 1<<image.LimitFraction-1), asm.RSh.Imm(asm.R0, image.LimitFraction),
		asm.LoadImm(asm.R3, int64(l.Most), asm.DWord), asm.LoadImm(asm.R4, int64(sure), asm.DWord),
		asm.JLE.Reg(asm.R0, asm.R4, small), asm.Add.Reg(asm.R3, asm.R4),
	)
	s.Mark(small)
	s.Add(asm.Sub.Reg(asm.R3, asm.R0), asm.JSGE.Reg(asm.R3, asm.R4, done), asm.Mov.Reg(asm.R3, asm.R4))
	s.Mark(done)
}
