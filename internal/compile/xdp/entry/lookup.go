// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// lookUp adds code that sets r0 to the class of the source. The code jumps to the label unlisted if a filter shows that the class is 0. lookUp
// reports false if all sources of the family have class 0.
func (s *section) lookUp() bool {
	if s.family.value == packet.FamilyIPv6 {
		return s.lookUp6()
	}
	if s.Filter4 == nil {
		return false
	}
	s.firstByte(s.label("unlisted"))
	s.loadSource4()
	f := s.Filter4
	if f.Hosts != nil && f.Hosts.Filter > 0 {
		s.longList()
		return true
	}
	if !f.All {
		s.Add(asm.Call.Label(image.Class4))
		return true
	}
	s.blocks()
	s.Add(asm.JEq.Imm(asm.R2, 0, s.label("unlisted")))
	if f.Hosts == nil {
		s.Add(asm.Call.Label(image.Class4InFilter))
		return true
	}
	s.host()
	return true
}

// loadSource4 adds code that sets r1 to the IPv4 source in host byte order.
func (s *section) loadSource4() {
	s.Add(asm.LoadMem(asm.R1, base, s.family.source, asm.Word), asm.HostTo(asm.BE, asm.R1, asm.Word))
}

// blocks adds code that sets r2 to the bit of the source in the bitmap of blocks. The source is in r1.
func (s *section) blocks() {
	s.Add(asm.Mov.Reg(asm.R4, asm.R1), asm.RSh.Imm(asm.R4, int32(s.Filter4.Shift)))
	s.bit(asm.R4, s.Filter4.Mask, image.Filter4)
}

// Stack offsets that host and longList use.
const (
	lineAt   = slotAt - 4 // the index of a line
	numberAt = lineAt - 4 // a host's number
	foundAt  = -24        // a pointer: whether the CPU's last source was a listed host
)

// secondFactor is the factor of second() of bpf/classify.h, as a signed number.
const secondFactor = addrs.SecondFactor - 1<<32

// number adds code that turns the source in r1 into its host number: permuted() of bpf/classify.h. The number is also stored at numberAt. The code
// changes r2.
func (s *section) number(h *addrs.Hosts4) {
	s.Add(
		asm.Xor.Imm32(asm.R1, int32(h.Key)), asm.Mul.Imm32(asm.R1, int32(h.Factor)),
		asm.Mov.Reg32(asm.R2, asm.R1), asm.RSh.Imm32(asm.R2, 16), asm.Xor.Reg32(asm.R1, asm.R2), asm.Mul.Imm32(asm.R1, addrs.HostFactor),
		asm.StoreMem(asm.RFP, numberAt, asm.R1, asm.Word),
	)
}

// share adds code that maps a 32-bit number to the range [0, of) in proportion.
func (s *section) share(number asm.Register, of int) {
	s.Add(asm.Mul.Imm(number, int32(of)), asm.RSh.Imm(number, 32))
}

// host adds code that sets r0 to the class of the source in r1. The code searches only the place where most listed hosts are: the line and the slot
// that the host number selects (class_by_wide() of bpf/classify.h, addrs.Hosts4). For other sources, code outside of the main path calls
// class4_in_filter().
func (s *section) host() {
	const number, slot = asm.R1, asm.R2
	other, found := s.newLabel(), s.newLabel()
	h := s.Filter4.Hosts
	s.number(h)
	s.Add(asm.Mul.Imm32(number, secondFactor))
	s.share(number, h.Wide)
	s.Add(
		asm.StoreMem(asm.RFP, lineAt, number, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, lineAt), asm.LoadMapPtr(asm.R1, 0).WithReference(image.Hosts4), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, other),
		asm.LoadMem(number, asm.RFP, numberAt, asm.Word),
		asm.LoadMem(slot, asm.R0, addrs.WideFactorAt, asm.Word), asm.Mul.Reg32(slot, number),
		asm.LSh.Imm(slot, 32), asm.RSh.Imm(slot, 32), // for the verifier before Linux 6.10: see slot_in_wide() of bpf/classify.h
	)
	s.share(slot, addrs.WideSlots)
	s.Add(
		asm.Mov.Reg(asm.R3, slot), asm.LSh.Imm(asm.R3, 2), asm.Add.Reg(asm.R3, asm.R0), asm.LoadMem(asm.R3, asm.R3, 0, asm.Word),
		asm.JNE.Reg(asm.R3, number, other),
		asm.LSh.Imm(slot, 1), asm.Add.Reg(asm.R0, slot), asm.LoadMem(asm.R0, asm.R0, addrs.WideClassAt, asm.Half),
		asm.JEq.Imm(asm.R0, 0, other), // the slot is empty and the host number is 0
	)
	s.Mark(found)
	s.apart = append(s.apart, func() {
		s.Mark(other)
		s.loadSource4()
		s.Add(asm.Call.Label(image.Class4InFilter), asm.Ja.Label(found))
	})
}

// longList adds code that sets r0 to the class of the source in r1, or jumps to the label unlisted. It uses the filter of hosts in the same way as
// class_of_host() of bpf/classify.h, so that most unlisted sources need no call. Code outside of the main path handles sources in listed blocks.
func (s *section) longList() {
	h, ask, found := s.Filter4.Hosts, s.newLabel(), s.newLabel()
	other := s.newLabel()
	if s.Filter4.Mask != 0 {
		s.blocks()
		s.Add(asm.JNE.Imm(asm.R2, 0, other))
	}
	s.number(h)
	if s.Filter4.Follow {
		s.element(image.HostsFound, 0, other)
		s.Add(
			asm.StoreMem(asm.RFP, foundAt, asm.R0, asm.DWord), asm.LoadMem(asm.R2, asm.R0, 0, asm.Word),
			asm.LoadMem(asm.R1, asm.RFP, numberAt, asm.Word), asm.JNE.Imm(asm.R2, 0, ask),
		)
	}
	s.Add(asm.Mov.Reg(asm.R5, asm.R1))
	s.share(asm.R5, h.Filter)
	s.Add(
		asm.LSh.Imm(asm.R5, 3), asm.LoadMapValue(asm.R3, 0, 0).WithReference(image.HostFilter4), asm.Add.Reg(asm.R3, asm.R5),
		asm.LoadMem(asm.R3, asm.R3, 0, asm.DWord), asm.Mov.Reg(asm.R4, asm.R3),
		asm.Mov.Reg32(asm.R2, asm.R1), asm.Mul.Imm32(asm.R2, secondFactor), asm.Mov.Reg(asm.R5, asm.R2),
		asm.RSh.Imm(asm.R2, 26), asm.RSh.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R5, 20), asm.And.Imm(asm.R5, 63), asm.RSh.Reg(asm.R4, asm.R5),
		asm.And.Reg(asm.R3, asm.R4), asm.And.Imm(asm.R3, 1), asm.JEq.Imm(asm.R3, 0, s.label("unlisted")),
	)
	s.Mark(ask)
	s.Add(asm.Call.Label(image.Class4OfHost))
	if s.Filter4.Follow {
		s.Add(asm.LoadMem(asm.R1, asm.RFP, foundAt, asm.DWord), asm.StoreMem(asm.R1, 0, asm.R0, asm.Word))
	}
	s.Mark(found)
	s.apart = append(s.apart, func() {
		s.Mark(other)
		s.loadSource4()
		s.Add(asm.Call.Label(image.Class4), asm.Ja.Label(found))
	})
}

// Limits for a test of the source's first byte. The test comes first if the first bytes of listed addresses form few ranges, and if they exclude most
// addresses.
const (
	mostFirstRanges = 3
	mostFirstBytes  = 64
)

// firstByte adds code that jumps to unlisted if the first byte of the source shows that its class is 0.
func (s *section) firstByte(unlisted string) {
	list, bytes := s.Filter4.FirstBytes, uint32(0)
	for _, r := range list {
		bytes += r.Last - r.First + 1
	}
	if len(list) > mostFirstRanges || bytes > mostFirstBytes {
		return
	}
	s.Add(asm.LoadMem(asm.R1, base, s.family.source, asm.Byte))
	s.test(asm.R1, list, unlisted)
}

// lookUp6 does the same as lookUp, for IPv6. The filter uses a hash of the upper 32 bits of the address, as in classify() of bpf/classify.h.
func (s *section) lookUp6() bool {
	const shift, filterMask = 44, 1<<14 - 1
	if !s.Table6 {
		return false
	}
	s.Add(
		asm.LoadMem(asm.R4, base, s.family.source, asm.Word), asm.HostTo(asm.BE, asm.R4, asm.Word),
		asm.LoadImm(asm.R1, int64(goldenRatio), asm.DWord), asm.Mul.Reg(asm.R4, asm.R1), asm.RSh.Imm(asm.R4, shift),
	)
	s.bit(asm.R4, filterMask, image.Filter6)
	s.Add(asm.JEq.Imm(asm.R2, 0, s.label("unlisted")))
	s.address(asm.R1, asm.R2, s.family.source)
	s.Add(asm.Call.Label(image.Class6))
	return true
}

// bit adds code that sets r2 to a bit of a bitmap. mask is the mask for the index of a word. The code changes r3.
func (s *section) bit(bit asm.Register, mask uint32, bitmap string) {
	s.Add(
		asm.Mov.Reg(asm.R3, bit),
		asm.RSh.Imm(asm.R3, 6),
		asm.And.Imm(asm.R3, int32(mask)),
		asm.LSh.Imm(asm.R3, 3),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(bitmap),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.LoadMem(asm.R2, asm.R2, 0, asm.DWord),
		asm.RSh.Reg(asm.R2, bit),
		asm.And.Imm(asm.R2, 1),
	)
}
