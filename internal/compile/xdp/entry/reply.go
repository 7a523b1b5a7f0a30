package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Offsets in struct reply_secrets of bpf/replyflow.h.
const (
	replyIndexKey    = 0
	replyAddressKeys = 32
)

// replies jumps to next unless the packet is a reply. One bit tells most packets that are none: reply_index() of bpf/replyflow.h, without a
// call. It changes r0 to r2 and r5. The code for the others stands apart, and goes on at next with the ports in their registers again.
func (s *section) replies(decision uint32, next string) {
	s.replied(next, func(string) { s.decideAs(decision, notAsked) })
}

// replied is replies with what is done with a packet that is a reply: then gets the label of what is done with others, and r0 has the answer of
// is_reply().
func (s *section) replied(next string, then func(none string)) {
	ask, none, found := s.newLabel(), s.newLabel(), s.newLabel()
	const index, keys = asm.R0, asm.R5
	other, size := s.family.source, asm.Word
	if !s.v4() {
		other, size = other+8, asm.DWord
	}
	s.Add(
		asm.LoadMapValue(keys, 0, 0).WithReference(image.ReplyFilter),
		asm.LoadMem(index, base, s.family.l4-4, asm.DWord), asm.Mul.Imm(index, s.replyKind()), // behind the end of this side's address are the ports
		asm.LoadMem(asm.R1, base, other, size), asm.Add.Reg(index, asm.R1),
		asm.LoadMem(asm.R1, keys, replyIndexKey, asm.DWord), asm.Mul.Reg(index, asm.R1), asm.RSh.Imm(index, 64-image.ReplyBucketBits),
	)
	s.replyBit(index, keys, ask)
	s.apart = append(s.apart, func() {
		s.Mark(ask)
		s.notQuestion(toGeneral)
		s.Add(asm.Mov.Reg(asm.R4, index))
		s.replyPair()
		s.Add(
			asm.LoadMem(asm.R2, base, s.family.l4, asm.Word),
			asm.LoadImm(asm.R3, int64(s.replyKind())<<32, asm.DWord), asm.Or.Reg(asm.R2, asm.R3),
		)
		if s.is(packet.ProtoTCP) {
			s.flags(asm.R3)
		} else {
			s.Add(asm.Mov.Imm(asm.R3, 0))
		}
		s.Add(asm.Call.Label(image.IsReply), asm.JNE.Imm(asm.R0, 0, found))
		s.Mark(none)
		s.loadPorts()
		s.Add(asm.Ja.Label(next))
		s.Mark(found)
		then(none)
	})
}

// replyBit jumps to used if the bucket with an index is in use, by the bit of the first filter. keys points to the filters, and is changed, as is r1.
func (s *section) replyBit(index, keys asm.Register, used string) {
	s.Add(
		asm.Mov.Reg(asm.R1, index), asm.RSh.Imm(asm.R1, 3), asm.And.Imm(asm.R1, ^7),
		asm.Add.Reg(keys, asm.R1), asm.LoadMem(asm.R1, keys, image.ReplySecretsSize, asm.DWord),
		asm.RSh.Reg(asm.R1, index), asm.JSet.Imm(asm.R1, 1, used),
	)
}

// replyKind is enum reply_kind of bpf/replyflow.h.
func (s *section) replyKind() int32 {
	if s.is(packet.ProtoTCP) {
		return image.ReplyTCP
	}
	return image.ReplyUDP
}

// replyPair loads both IPv4 addresses into r1 as they stand, or sums both IPv6 addresses as reply_addresses6() does. It changes r2, r5 and,
// for IPv6, the number of remaining bytes, which is not needed any more where a section asks for replies.
func (s *section) replyPair() {
	if s.v4() {
		s.Add(asm.LoadMem(asm.R1, base, s.family.source, asm.DWord))
		return
	}
	const sum, word, half = asm.R1, remaining, asm.R2
	s.Add(asm.LoadMapValue(asm.R5, 0, 0).WithReference(image.ReplyFilter))
	for i := range int16(4) {
		s.Add(
			asm.LoadMem(word, base, s.family.source+8*i, asm.DWord), asm.LoadMem(half, asm.R5, replyAddressKeys+8*i, asm.DWord), asm.Add.Reg(word, half),
			asm.Mov.Reg32(half, word), asm.RSh.Imm(word, 32), asm.Mul.Reg(half, word),
		)
		if i == 0 {
			s.Add(asm.Mov.Reg(sum, half))
		} else {
			s.Add(asm.Add.Reg(sum, half))
		}
	}
}
