// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Constants of bpf/datagram.h.
const (
	idFactor1   = 0x1e3779b1 // ID_FACTOR1
	idFactor2   = 0x45d9f3b5 // ID_FACTOR2
	quicLong    = 0x80
	quicFixed   = 0x40
	udpHeader   = 8
	wireguardID = 4   // offset of the receiver index in a data packet
	a2sInfo     = 'T' // 'T', and the following letters, are the kinds of queries: A2S_INFO, A2S_PLAYER and A2S_RULES of bpf/a2s.h
	a2sRules    = 'V'
)

// proved jumps to next unless the packet has an identifier that the service has issued to any client. It does the same as proved_datagram() of
// bpf/client.h. The generated code looks up the identifiers of data packets itself. One bit excludes most data packets without an issued identifier,
// so a flood of them costs little. For other kinds of packets the generated code calls proved_datagram(). The code of noCalm must precede it.
func (s *section) proved(flood int, decision uint32, next string) {
	const id, keys, end = asm.R4, asm.R5, asm.R1
	function, ask, passes := s.newLabel(), s.newLabel(), s.newLabel()
	payload := s.family.l4 + udpHeader
	protocol := s.Program.Floods[flood].Protocol
	s.loadLength(asm.R1, s.family)
	s.Add(
		asm.JLT.Imm(asm.R1, s.family.header()+udpHeader+int32(protocol.Least()), s.short),
		asm.LoadMem(end, context, s.at.end, asm.Word), asm.Mov.Reg(asm.R2, base), asm.Add.Imm(asm.R2, int32(payload)+int32(protocol.Least())),
		asm.JGT.Reg(asm.R2, end, s.short),
		asm.LoadMapValue(asm.R1, 0, floodState(flood)+floodUnproved).WithReference(image.FloodStates), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JGT.Reg(asm.R1, clock, next),
	)
	other, lookup := s.newLabel(), s.newLabel()
	if protocol == packet.WireGuard {
		s.Add(
			asm.LoadMem(asm.R1, base, payload, asm.Word), asm.JNE.Imm(asm.R1, wireguardData, other),
			asm.LoadMem(id, base, payload+wireguardID, asm.Word),
		)
	} else {
		s.Add(asm.LoadMem(asm.R1, base, payload, asm.Byte), asm.JSet.Imm(asm.R1, quicLong, other))
		s.connectionID(flood, id, payload+1, next)
	}
	s.Mark(lookup)
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
		s.Mark(other)
		if protocol == packet.WireGuard {
			s.Add(asm.JEq.Imm(asm.R1, wireguardInitiation, next)) // an initiation has no identifier
		} else {
			s.longID(id, payload, function, next)
			s.Add(asm.Ja.Label(lookup))
		}
		s.Mark(function)
		s.askFrame(image.ProvedInFrame, flood)
		s.Add(asm.JEq.Imm(asm.R0, 0, next))
		s.Mark(passes)
		s.decideAs(decision, notAsked)
	})
}

// query jumps to next unless a packet may be a query or a request to a game server. It does the same as read_query() of bpf/a2s.h and read_request()
// of bpf/raknet.h. It decides an A2S query that certainly proves no address. It leaves other queries to general(). The code of noCalm must precede
// it.
func (s *section) query(flood int, decision uint32, next string) {
	payload, protocol := s.family.l4+udpHeader, s.Program.Floods[flood].Protocol
	s.loadLength(asm.R1, s.family)
	s.Add(
		asm.JLT.Imm(asm.R1, s.family.header()+udpHeader+int32(protocol.Least()), next),
		asm.LoadMem(asm.R1, context, s.at.end, asm.Word), asm.Mov.Reg(asm.R2, base), asm.Add.Imm(asm.R2, int32(payload)+int32(protocol.Least())),
		asm.JGT.Reg(asm.R2, asm.R1, toGeneral),
	)
	if protocol == packet.A2S {
		s.Add(
			asm.LoadMem(asm.R1, base, payload, asm.Word), asm.JNE.Imm32(asm.R1, -1, next),
			asm.LoadMem(asm.R1, base, payload+4, asm.Byte), asm.JLT.Imm(asm.R1, a2sInfo, next), asm.JGT.Imm(asm.R1, a2sRules, next),
		)
		s.protectAs(decision)
		s.Add(asm.Call.Label(image.ChallengeQuery), asm.JEq.Imm(asm.R0, 0, toGeneral), asm.Return())
		return
	}
	s.Add(
		asm.LoadMem(asm.R1, base, payload, asm.Byte), asm.Or.Imm(asm.R1, rakNetRequests), asm.JNE.Imm(asm.R1, rakNetRequest2, next),
		asm.LoadMem(asm.R1, base, payload+1, asm.DWord), asm.LoadImm(asm.R2, rakNetMagic, asm.DWord), asm.JEq.Reg(asm.R1, asm.R2, toGeneral),
	)
}

// noSecondRequest leaves a packet from a known client to general() if it may be a second request to a RakNet server. If the request has a cookie of
// Floodwall, general() must change it (admit() of bpf/gamereply.h).
func (s *section) noSecondRequest() {
	payload := s.family.l4 + udpHeader
	s.Add(
		asm.LoadMem(asm.R1, context, s.at.end, asm.Word), asm.Mov.Reg(asm.R2, base), asm.Add.Imm(asm.R2, int32(payload)+1),
		asm.JGT.Reg(asm.R2, asm.R1, toGeneral),
		asm.LoadMem(asm.R1, base, payload, asm.Byte), asm.JEq.Imm(asm.R1, rakNetRequest2, toGeneral),
	)
}

// stray decides packets that cannot be the first packet of a client: stray_datagram() of bpf/datagram.h. The generated code itself recognizes the
// most frequent first packets, so that a flood of them costs little. The code of proved must precede it, because that code tests the length of the
// datagram.
func (s *section) stray(flood int, decision uint32, next string) {
	if s.Program.Floods[flood].Protocol == packet.WireGuard {
		s.beginsWireGuard(next)
	} else {
		s.beginsQUIC(flood, next)
	}
	s.Mark(s.short)
	s.decideAs(decision, notAsked)
}

// beginsWireGuard jumps to next for an initiation. Other packets are stray and continue.
func (s *section) beginsWireGuard(next string) {
	payload := s.family.l4 + udpHeader
	s.Add(asm.LoadMem(asm.R1, base, payload, asm.Word), asm.JNE.Imm(asm.R1, wireguardInitiation, s.short))
	s.loadLength(asm.R1, s.family)
	s.Add(
		asm.JNE.Imm(asm.R1, s.family.header()+udpHeader+initiationLength, s.short),
		asm.LoadMem(asm.R1, context, s.at.end, asm.Word), asm.Mov.Reg(asm.R2, base), asm.Add.Imm(asm.R2, int32(payload)+initiationLength),
		asm.JGT.Reg(asm.R2, asm.R1, s.short),
		asm.LoadMem(asm.R1, base, payload+mac1At, asm.DWord), asm.LoadMem(asm.R2, base, payload+mac1At+8, asm.DWord), asm.Or.Reg(asm.R1, asm.R2),
		asm.JNE.Imm(asm.R1, 0, next),
	)
}

// beginsQUIC jumps to next for a packet with a short header, and for an Initial of version 1. It calls the C function for other packets with a long
// header. Stray packets continue.
func (s *section) beginsQUIC(flood int, next string) {
	payload := s.family.l4 + udpHeader
	long, function, short := s.newLabel(), s.newLabel(), s.short // the label s.short is of this service
	s.Add(
		asm.LoadMem(asm.R1, base, payload, asm.Byte), asm.JSet.Imm(asm.R1, quicLong, long),
		asm.JSet.Imm(asm.R1, quicFixed, next), asm.Ja.Label(short),
	)
	s.apart = append(s.apart, func() {
		const theirs, end, at = asm.R2, asm.R4, asm.R3
		s.Mark(long)
		s.Add(
			asm.And.Imm(asm.R1, 0xf0), asm.JNE.Imm(asm.R1, quicLong|quicFixed, function), // an Initial
			asm.LoadMem(asm.R1, base, payload+1, asm.Word), asm.JNE.Imm(asm.R1, quicVersion1, function),
		)
		s.loadLength(asm.R1, s.family)
		s.Add(
			asm.JLT.Imm(asm.R1, s.family.header()+udpHeader+initialLength, short),
			asm.LoadMem(theirs, base, payload+5, asm.Byte), asm.JLT.Imm(theirs, drawnID, short), asm.JGT.Imm(theirs, packet.MostID, short),
			asm.Mov.Reg(at, base), asm.Add.Reg(at, theirs), asm.LoadMem(end, context, s.at.end, asm.Word),
			asm.Mov.Reg(asm.R1, at), asm.Add.Imm(asm.R1, int32(payload)+7), asm.JGT.Reg(asm.R1, end, function),
			asm.LoadMem(asm.R1, at, payload+6, asm.Byte), asm.JLE.Imm(asm.R1, packet.MostID, next), asm.Ja.Label(short),
		)
		s.Mark(function)
		s.askFrame(image.StrayInFrame, flood)
		s.Add(asm.JEq.Imm(asm.R0, 0, next), asm.Ja.Label(short))
	})
}

// The first words of messages as a little-endian machine loads them, and other constants of bpf/datagram.h.
const (
	wireguardInitiation = 1
	wireguardData       = 4
	initiationLength    = 148 // INITIATION_LENGTH
	mac1At              = 116 // MAC1_AT
	quicVersion1        = 1 << 24
	initialLength       = 1200               // INITIAL_LENGTH
	drawnID             = 8                  // DRAWN_ID
	longLeast           = 6 + packet.MostID  // bytes of a packet with a long header, up to the longest connection ID of the receiver
	rakNetRequest2      = 7                  // RAKNET_REQUEST2 of bpf/raknet.h
	rakNetRequests      = 2                  // the bit in which it differs from the kind of the first request, RAKNET_REQUEST1
	rakNetMagic         = -0x1010101ff000100 // RAKNET_MAGIC1
)

// longID loads the key of a connection ID, like connectionID, for a packet with a long header. Such a packet contains the length of the ID. It jumps
// to none if there is no valid ID, and to function if the packet is short.
func (s *section) longID(id asm.Register, payload int16, function, none string) {
	s.loadLength(asm.R1, s.family)
	s.Add(
		asm.JLT.Imm(asm.R1, s.family.header()+udpHeader+longLeast, function),
		asm.LoadMem(asm.R1, context, s.at.end, asm.Word), asm.Mov.Reg(asm.R2, base), asm.Add.Imm(asm.R2, int32(payload)+longLeast),
		asm.JGT.Reg(asm.R2, asm.R1, function),
		asm.LoadMem(asm.R1, base, payload+5, asm.Byte), asm.JLT.Imm(asm.R1, packet.LeastID, none), asm.JGT.Imm(asm.R1, packet.MostID, none),
		asm.Mul.Imm(asm.R1, image.IDMaskSize), asm.LoadMapValue(asm.R2, 0, 0).WithReference(image.IDMasks), asm.Add.Reg(asm.R2, asm.R1),
	)
	s.maskedID(id, payload+6, none)
}

// connectionID loads the key of the connection ID at an offset: issued_key() of bpf/datagram.h. The length of the service's IDs is known from packets
// that the service has sent. If it is not known yet, connectionID jumps to none.
func (s *section) connectionID(flood int, id asm.Register, at int16, none string) {
	s.Add(asm.LoadMapValue(asm.R2, 0, floodState(flood)+floodIDMask).WithReference(image.FloodStates))
	s.maskedID(id, at, none)
}

// maskedID loads the key of a connection ID. R2 points to the mask for its length.
func (s *section) maskedID(id asm.Register, at int16, none string) {
	s.Add(
		asm.LoadMem(id, base, at, asm.DWord), asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord), asm.JEq.Imm(asm.R1, 0, none), asm.And.Reg(id, asm.R1),
		asm.LoadMem(asm.R1, base, at+8, asm.DWord), asm.LoadMem(asm.R3, asm.R2, 8, asm.DWord), asm.And.Reg(asm.R1, asm.R3),
		asm.Mul.Imm(asm.R1, idFactor1), asm.Add.Reg(id, asm.R1),
		asm.LoadMem(asm.R1, base, at+16, asm.Word), asm.LoadMem(asm.R3, asm.R2, 16, asm.DWord), asm.And.Reg(asm.R1, asm.R3),
		asm.Mul.Imm(asm.R1, idFactor2), asm.Add.Reg(id, asm.R1),
	)
}
