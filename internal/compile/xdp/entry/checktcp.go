// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TCP flags, and offsets in the TCP header.
const (
	flagsSYN    = 0x02
	flagsACK    = 0x10
	flagsSYNACK = flagsSYN | flagsACK

	ackAt    = 8
	offsetAt = 12
	flagsAt  = 13
	windowAt = 14
)

// tcpHeader adds code that compares the header length with the rest of the IP packet.
func (s *section) tcpHeader(exit string) {
	if !s.is(packet.ProtoTCP) {
		return
	}
	s.headerLength(asm.R1)
	s.Add(
		asm.JLT.Imm(asm.R1, 20, exit),
		asm.Add.Imm(asm.R1, s.family.header()),
		asm.JGT.Reg(asm.R1, length, exit),
	)
}

// suspectTCPHeader tests the complete byte that contains the header length, including its reserved bits. So it also suspects packets with these bits
// set.
func (s *section) suspectTCPHeader(exit string) {
	if s.is(packet.ProtoTCP) {
		s.Add(
			asm.LoadMem(asm.R1, base, s.family.l4+offsetAt, asm.Byte), asm.JLT.Imm(asm.R1, 20<<2, exit),
			asm.RSh.Imm(asm.R1, 2), asm.Add.Imm(asm.R1, s.family.header()), asm.JGT.Reg(asm.R1, length, exit),
		)
	}
}

// headerLength loads the length of the TCP header in bytes into a register.
func (s *section) headerLength(to asm.Register) {
	s.Add(asm.LoadMem(to, base, s.family.l4+offsetAt, asm.Byte), asm.RSh.Imm(to, 4), asm.LSh.Imm(to, 2))
}

func (s *section) flags(to asm.Register) {
	s.Add(asm.LoadMem(to, base, s.family.l4+flagsAt, asm.Byte))
}

// tcpFlags adds code that looks up the flags in a bitmap of the invalid combinations.
func (s *section) tcpFlags(exit string) {
	s.flagsAmong(func(flags byte) bool { return !packet.ValidFlags(flags) }, exit)
}

// suspectTCPFlags also suspects every SYN if any check of SYNs is enabled.
func (s *section) suspectTCPFlags(exit string) {
	s.flagsAmong(func(flags byte) bool {
		return !packet.ValidFlags(flags) || s.checksSYN() && flags&flagsSYNACK == flagsSYN
	}, exit)
}

// suspectSYN adds no code if the check of suspectTCPFlags is enabled, because suspectTCPFlags then finds SYNs, too.
func (s *section) suspectSYN(exit string) {
	if !s.asked(packet.TCPFlags) {
		s.onSYN(func() { s.Add(asm.Ja.Label(exit)) })
	}
}

// checksSYN reports whether any check of SYNs is enabled.
func (s *section) checksSYN() bool {
	return slices.ContainsFunc([]packet.Check{packet.TCPOptions, packet.SYNData, packet.SYNLowPort, packet.SYNNoMSS, packet.SYNWindowZero}, s.asked)
}

// flagsAmong adds code that jumps to exit if some() returns true for the lower six TCP flags of the packet. The code
// shifts a 64-bit bitmap by the flags. A 64-bit shift uses only the lower six bits of its count.
func (s *section) flagsAmong(some func(flags byte) bool, exit string) {
	if !s.is(packet.ProtoTCP) {
		return
	}
	var bits uint64
	for flags := range byte(64) {
		if some(flags) {
			bits |= 1 << flags
		}
	}
	s.flags(asm.R1)
	s.Add(asm.LoadImm(asm.R2, int64(bits), asm.DWord), asm.RSh.Reg(asm.R2, asm.R1), asm.JSet.Imm(asm.R2, 1, exit))
}

func (s *section) ackZero(exit string) {
	if !s.is(packet.ProtoTCP) {
		return
	}
	other := s.newLabel()
	s.flags(asm.R1)
	s.Add(
		asm.And.Imm(asm.R1, flagsACK), asm.JEq.Imm(asm.R1, 0, other),
		asm.LoadMem(asm.R1, base, s.family.l4+ackAt, asm.Word), asm.JEq.Imm(asm.R1, 0, exit),
	)
	s.Mark(other)
}

// onSYN adds code that runs only for segments that open a connection.
func (s *section) onSYN(code func()) {
	if !s.is(packet.ProtoTCP) {
		return
	}
	other := s.newLabel()
	s.flags(asm.R1)
	s.Add(asm.And.Imm(asm.R1, flagsSYNACK), asm.JNE.Imm(asm.R1, flagsSYN, other))
	code()
	s.Mark(other)
}

// synForGeneral leaves SYNs to general(). It is used for checks that no profile has.
func (s *section) synForGeneral(string) {
	s.onSYN(func() { s.Add(asm.Ja.Label(toGeneral)) })
}

// synOptions leaves a SYN to general(), unless the SYN has no options, or the usual options of Linux, Android or Windows.
func (s *section) synOptions(string) {
	s.onSYN(func() {
		none := s.newLabel()
		s.headerLength(asm.R1)
		s.Add(asm.JEq.Imm(asm.R1, 20, none))
		s.usualOptions(asm.R1)
		s.Mark(none)
	})
}

// synNoMSS adds code that jumps to exit for SYNs without options. At this place, a SYN with options is known to have the usual ones, which include an
// MSS.
func (s *section) synNoMSS(exit string) {
	s.onSYN(func() {
		s.headerLength(asm.R1)
		if s.asked(packet.TCPOptions) {
			s.Add(asm.JEq.Imm(asm.R1, 20, exit))
			return
		}
		some := s.newLabel()
		s.Add(asm.JNE.Imm(asm.R1, 20, some), asm.Ja.Label(exit))
		s.Mark(some)
		s.usualOptions(asm.R1)
	})
}

// optionPart is a part of the options of a SYN, at an offset within the options. The value is in network order.
type optionPart struct {
	at    int16
	size  asm.Size
	value uint32
}

// usualOptions leaves a SYN to general() unless its options are those of struct usual_options in bpf/l4.h, those of struct plain_options in
// bpf/usualsyn.h, or only an MSS. The register header has the length of the TCP header.
func (s *section) usualOptions(header asm.Register) {
	full, plain, done := s.newLabel(), s.newLabel(), s.newLabel()
	s.Add(asm.JNE.Imm(header, 20+4, full))
	s.options(4, []optionPart{{0, asm.Half, 0x0204}})
	s.Add(asm.Ja.Label(done))
	s.Mark(full)
	s.Add(asm.JNE.Imm(header, 20+20, plain))
	s.options(20, []optionPart{{0, asm.Half, 0x0204}, {4, asm.Word, 0x0402080a}, {16, asm.Half, 0x0103}, {18, asm.Byte, 3}})
	s.Add(asm.Ja.Label(done))
	s.Mark(plain)
	s.Add(asm.JNE.Imm(header, 20+12, toGeneral))
	s.options(12, []optionPart{{0, asm.Half, 0x0204}, {4, asm.Half, 0x0103}, {6, asm.Byte, 3}, {8, asm.Word, 0x01010402}})
	s.Mark(done)
}

// options leaves a packet to general() unless it has this number of bytes of options, and these parts.
func (s *section) options(bytes int32, parts []optionPart) {
	at := s.family.l4 + 20
	s.Add(
		asm.JLT.Imm(length, s.family.header()+20+bytes, toGeneral),
		asm.LoadMem(asm.R1, context, s.at.end, asm.Word),
	)
	s.inFrame(base, int32(at)+bytes, asm.R1)
	for _, p := range parts {
		s.Add(asm.LoadMem(asm.R1, base, at+p.at, p.size))
		if p.size != asm.Byte {
			s.Add(asm.HostTo(asm.BE, asm.R1, p.size))
		}
		s.Add(asm.JNE.Imm(asm.R1, int32(p.value), toGeneral))
	}
}

// segmentSize jumps to next unless packet.MSS is in one of the ranges. It leaves a segment with SYN to general() if its first option is not the MSS.
// It changes r1 and r2.
func (s *section) segmentSize(in []ir.Range, next string) {
	const mss = 20 // offset from the start of the TCP header
	m := ir.Match{Field: packet.MSS, Values: in}
	found := s.newLabel()
	other := next
	if m.Has(packet.MSSNone) {
		other = found
	}
	s.flags(asm.R1)
	s.Add(asm.And.Imm(asm.R1, flagsSYN), asm.JEq.Imm(asm.R1, 0, other))
	s.headerLength(asm.R1)
	s.loadLength(asm.R2, s.family)
	s.Add(
		asm.JLT.Imm(asm.R1, mss+4, toGeneral), asm.Add.Imm(asm.R1, s.family.header()), asm.JGT.Reg(asm.R1, asm.R2, toGeneral),
		asm.LoadMem(asm.R1, context, s.at.end, asm.Word),
	)
	s.inFrame(base, int32(s.family.l4)+mss+4, asm.R1)
	s.Add(
		asm.LoadMem(asm.R1, base, s.family.l4+mss, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half), asm.JNE.Imm(asm.R1, 0x0204, toGeneral),
		asm.LoadMem(asm.R1, base, s.family.l4+mss+2, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
	)
	if sizes := within(m, ir.Range{First: 0, Last: packet.MSSMissing - 1}); len(sizes) > 0 {
		s.test(asm.R1, sizes, next)
	} else {
		s.Add(asm.Ja.Label(next))
	}
	s.Mark(found)
}

func (s *section) synWindowZero(exit string) {
	s.onSYN(func() {
		s.Add(asm.LoadMem(asm.R1, base, s.family.l4+windowAt, asm.Half), asm.JEq.Imm(asm.R1, 0, exit))
	})
}
