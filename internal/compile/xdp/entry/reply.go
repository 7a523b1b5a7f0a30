// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Offsets of members in struct reply_secrets of bpf/replyflow.h.
const (
	replyIndexKey    = 0
	replyPortsKey    = 8
	replyAddressKeys = 40
)

// replies adds code that jumps to next unless the packet is a reply. For most packets that are not replies, a single bit shows that, and no call is
// needed: reply_index() of bpf/replyflow.h. The code for the other packets is outside of the main path. It restores the registers of the ports before
// it jumps to next. The code changes r0 to r2 and r5. For IPv6 it also changes the number of remaining bytes, which is no longer needed there.
func (s *section) replies(decision uint32, next string) {
	s.replied(next, false, func(string) { s.decideAs(decision, notAsked) })
}

// replied does the same as replies, but the function then adds the code for replies. then gets the label of the code for other packets. In the code
// for replies, r0 has the result of is_reply(). If keep is set, because again() needs the hash of the flow, the code keeps it on the stack.
func (s *section) replied(next string, keep bool, then func(none string)) {
	ask, none, found := s.newLabel(), s.newLabel(), s.newLabel()
	const index, keys = asm.R0, asm.R5
	s.Add(asm.LoadMapValue(keys, 0, 0).WithReference(image.ReplyFilter))
	s.replyPair(index, keys)
	s.Add(
		asm.LoadMem(asm.R1, keys, replyIndexKey, asm.DWord), asm.Mul.Reg(index, asm.R1),
		asm.LoadMem(asm.R1, base, s.family.l4, asm.Word), asm.LoadMem(asm.R2, keys, replyPortsKey, asm.DWord), asm.Mul.Reg(asm.R1, asm.R2),
		asm.Add.Reg(index, asm.R1),
	)
	if keep {
		s.Add(asm.StoreMem(asm.RFP, flowAt, index, asm.DWord))
	}
	s.Add(asm.RSh.Imm(index, 64-image.ReplyBucketBits))
	s.replyBit(index, keys, ask)
	s.apart = append(s.apart, func() {
		s.Mark(ask)
		s.notQuestion(toGeneral)
		s.Add(asm.Mov.Reg(asm.R4, index))
		if s.v4() {
			s.replyPair(asm.R1, 0)
		} else {
			s.Add(asm.Mov.Reg(asm.R1, remaining))
		}
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

// replyBit adds code that jumps to used if the bit of a bucket in the first filter shows that the bucket is in use. keys points to the filters. The
// code changes keys and r1.
func (s *section) replyBit(index, keys asm.Register, used string) {
	s.Add(
		asm.Mov.Reg(asm.R1, index), asm.RSh.Imm(asm.R1, 3), asm.And.Imm(asm.R1, ^7),
		asm.Add.Reg(keys, asm.R1), asm.LoadMem(asm.R1, keys, image.ReplySecretsSize, asm.DWord),
		asm.RSh.Reg(asm.R1, index), asm.JSet.Imm(asm.R1, 1, used),
	)
}

// replyKind returns the value of enum reply_kind in bpf/replyflow.h for the section's protocol.
func (s *section) replyKind() int32 {
	if s.is(packet.ProtoTCP) {
		return image.ReplyTCP
	}
	return image.ReplyUDP
}

// replyPair adds code that loads both IPv4 addresses unchanged, or the sum of both IPv6 addresses, as reply_addresses6() computes it. For IPv6 the
// code changes r1, r2 and the register of the number of remaining bytes.
func (s *section) replyPair(to, keys asm.Register) {
	if s.v4() {
		s.Add(asm.LoadMem(to, base, s.family.source, asm.DWord))
		return
	}
	const sum, half = remaining, asm.R2
	for i := range int16(4) {
		word := asm.R1
		if i == 0 {
			word = sum
		}
		s.Add(
			asm.LoadMem(word, base, s.family.source+8*i, asm.DWord), asm.LoadMem(half, keys, replyAddressKeys+8*i, asm.DWord), asm.Add.Reg(word, half),
			asm.Mov.Reg32(half, word), asm.RSh.Imm(word, 32), asm.Mul.Reg(word, half),
		)
		if i > 0 {
			s.Add(asm.Add.Reg(sum, word))
		}
	}
	s.Add(asm.Mov.Reg(to, sum))
}
