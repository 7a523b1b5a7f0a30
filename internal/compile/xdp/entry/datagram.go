package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Numbers of bpf/datagram.h.
const (
	idFactor1   = 0x1e3779b1 // ID_FACTOR1
	idFactor2   = 0x45d9f3b5 // ID_FACTOR2
	quicLong    = 0x80
	quicFixed   = 0x40
	udpHeader   = 8
	wireguardID = 4 // where data have the index
)

// proved jumps to next unless the packet has an identifier that the service has issued to anybody: proved_datagram() of bpf/client.h. Data are looked up
// here, as a flood of them is to cost little: one bit tells most that have none. Other kinds are for that function. noCalm has come before.
func (s *section) proved(flood int, decision uint32, next string) {
	const id, keys, end = asm.R4, asm.R5, asm.R1
	function, ask, passes := s.newLabel(), s.newLabel(), s.newLabel()
	payload := s.family.l4 + udpHeader
	protocol := s.Program.Floods[flood].Protocol
	s.loadLength(asm.R1, s.family)
	s.Add(
		asm.JLT.Imm(asm.R1, s.family.header()+udpHeader+int32(protocol.Least()), s.short),
		asm.LoadMem(end, context, ctxDataEnd, asm.Word), asm.Mov.Reg(asm.R2, base), asm.Add.Imm(asm.R2, int32(payload)+int32(protocol.Least())),
		asm.JGT.Reg(asm.R2, end, s.short),
		asm.LoadMapValue(asm.R1, 0, floodState(flood)+floodUnproved).WithReference(image.FloodStates), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JGT.Reg(asm.R1, clock, next),
	)
	if protocol == packet.WireGuard {
		s.Add(
			asm.LoadMem(asm.R1, base, payload, asm.Word), asm.JNE.Imm(asm.R1, wireguardData, function),
			asm.LoadMem(id, base, payload+wireguardID, asm.Word),
		)
	} else {
		s.Add(asm.LoadMem(asm.R1, base, payload, asm.Byte), asm.JSet.Imm(asm.R1, quicLong, function))
		s.shortID(flood, id, payload+1, next)
	}
	s.Add(
		asm.LoadMapValue(keys, 0, 0).WithReference(image.ReplyFilter),
		asm.LoadMem(asm.R3, keys, replyIndexKey, asm.DWord), asm.Mul.Reg(asm.R3, id), asm.RSh.Imm(asm.R3, 64-image.ReplyBucketBits),
	)
	s.replyBit(asm.R3, keys, ask)
	s.apart = append(s.apart, func() {
		s.Mark(ask)
		s.Add(
			asm.Mov.Reg(asm.R1, id), asm.LoadImm(asm.R2, image.ReplyIssued<<32, asm.DWord), asm.Mov.Reg(asm.R4, asm.R3), asm.Mov.Imm(asm.R3, 0),
			asm.Call.Label(image.IsReply), asm.JEq.Imm(asm.R0, 0, next),
			asm.FnGetPrandomU32.Call(), asm.And.Imm(asm.R0, ir.KnownShare-1), asm.JNE.Imm(asm.R0, 0, passes),
		)
		s.askFrame(image.ProvedInFrame, flood|clientDrawn)
		s.Add(asm.JNE.Imm(asm.R0, 0, passes), asm.Ja.Label(next))
		s.Mark(function)
		s.askFrame(image.ProvedInFrame, flood)
		s.Add(asm.JEq.Imm(asm.R0, 0, next))
		s.Mark(passes)
		s.decideAs(decision, notAsked)
	})
}

// stray decides a packet with which nobody begins to talk: stray_datagram() of bpf/datagram.h. Data of WireGuard are such, and short packets of QUIC are none.
// proved has come before, and has seen that the datagram is long enough.
func (s *section) stray(flood int, decision uint32, next string) {
	payload := s.family.l4 + udpHeader
	if s.Program.Floods[flood].Protocol == packet.WireGuard {
		s.Add(asm.LoadMem(asm.R1, base, payload, asm.Word), asm.JNE.Imm(asm.R1, wireguardInitiation, s.short))
	} else {
		function := s.newLabel()
		s.Add(
			asm.LoadMem(asm.R1, base, payload, asm.Byte), asm.JSet.Imm(asm.R1, quicLong, function),
			asm.JSet.Imm(asm.R1, quicFixed, next), asm.Ja.Label(s.short),
		)
		s.Mark(function)
	}
	s.askFrame(image.StrayInFrame, flood)
	s.Add(asm.JEq.Imm(asm.R0, 0, next))
	s.Mark(s.short)
	s.decideAs(decision, notAsked)
}

// The first words of messages, as a little-endian machine loads them.
const (
	wireguardInitiation = 1
	wireguardData       = 4
)

// shortID loads the key of the connection ID at a place, issued_key() of bpf/datagram.h, as long as the service has
// told that it is, and jumps to none if it has not.
func (s *section) shortID(flood int, id asm.Register, at int16, none string) {
	s.Add(
		asm.LoadMapValue(asm.R2, 0, floodState(flood)+floodIDMask).WithReference(image.FloodStates),
		asm.LoadMem(id, base, at, asm.DWord), asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord), asm.JEq.Imm(asm.R1, 0, none), asm.And.Reg(id, asm.R1),
		asm.LoadMem(asm.R1, base, at+8, asm.DWord), asm.LoadMem(asm.R3, asm.R2, 8, asm.DWord), asm.And.Reg(asm.R1, asm.R3),
		asm.Mul.Imm(asm.R1, idFactor1), asm.Add.Reg(id, asm.R1),
		asm.LoadMem(asm.R1, base, at+16, asm.Word), asm.LoadMem(asm.R3, asm.R2, 16, asm.DWord), asm.And.Reg(asm.R1, asm.R3),
		asm.Mul.Imm(asm.R1, idFactor2), asm.Add.Reg(id, asm.R1),
	)
}
