// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"math"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// hash is the register with the hash of the packet's prefixes for a limit. It is the register of the number of remaining bytes, which rules do not
// need.
const hash = remaining

// hashPrefixes adds the code of hash_prefixes() of bpf/limit.h. The keys are secret, so the code reads them from the map of constants. They are
// inserted when the program is loaded. The code changes r1 to r3.
func (s *section) hashPrefixes(l *image.LimitInfo) {
	s.Add(asm.Mov.Imm(hash, int32(s.family.value)*int32(l.Prefixes)))
	s.sum(s.family.source, l.Src[s.family.value], 0)
	if dst := l.Dst[s.family.value]; dst != (image.AddressMask{}) {
		s.sum(s.family.dest, dst, 4)
	}
	s.foldHash(32)
	for i, shift := range []int32{29, 32} {
		s.constant(asm.R1, "limit_mix", 8*i, asm.DWord)
		s.Add(asm.Mul.Reg(hash, asm.R1))
		s.foldHash(shift)
	}
}

// foldHash adds code for hash ^= hash >> shift.
func (s *section) foldHash(shift int32) {
	s.Add(asm.Mov.Reg(asm.R1, hash), asm.RSh.Imm(asm.R1, shift), asm.Xor.Reg(hash, asm.R1))
}

// sum adds code that adds sum_address() of a masked address to the hash. key is the index of the first of the four keys.
func (s *section) sum(at int16, mask image.AddressMask, key int) {
	if s.family.value == packet.FamilyIPv4 { // the address is in its IPv4-mapped form
		s.product(0, 0, key, func() {})
		s.product(uint32(0xffff&(mask.Lo>>32)), uint32(mask.Lo), key+2, func() {
			s.Add(asm.LoadMem(asm.R2, base, at, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word))
		})
		return
	}
	for i, half := range []uint64{mask.Hi, mask.Lo} {
		s.product6(at+8*int16(i), half, key+2*i)
	}
}

// product adds code that adds a product of two 32-bit numbers to the hash. Each factor is a number plus its key. The first number is the constant
// known. load adds code that loads the second number into r2, which is then masked.
func (s *section) product(known, mask uint32, key int, load func()) {
	s.constant(asm.R1, "limit_keys", 4*key, asm.Word)
	if known != 0 {
		s.Add(asm.Add.Imm32(asm.R1, int32(known)))
	}
	s.constant(asm.R3, "limit_keys", 4*key+4, asm.Word)
	if mask != 0 {
		load()
		if mask != math.MaxUint32 {
			s.Add(asm.And.Imm32(asm.R2, int32(mask)))
		}
		s.Add(asm.Add.Reg32(asm.R3, asm.R2))
	}
	s.Add(asm.Mul.Reg(asm.R1, asm.R3), asm.Add.Reg(hash, asm.R1))
}

// product6 adds code that adds a product of the two halves of 64 bits of an address to the hash. Each half is masked, and its key is added.
func (s *section) product6(at int16, mask uint64, key int) {
	if mask == 0 {
		s.product(0, 0, key, nil)
		return
	}
	s.Add(asm.LoadMem(asm.R2, base, at, asm.DWord), asm.HostTo(asm.BE, asm.R2, asm.DWord))
	if mask != math.MaxUint64 {
		s.Add(asm.LoadImm(asm.R1, int64(mask), asm.DWord), asm.And.Reg(asm.R2, asm.R1))
	}
	s.constant(asm.R1, "limit_keys", 4*key, asm.Word)
	s.Add(asm.Mov.Reg(asm.R3, asm.R2), asm.RSh.Imm(asm.R3, 32), asm.Add.Reg32(asm.R1, asm.R3))
	s.constant(asm.R3, "limit_keys", 4*key+4, asm.Word)
	s.Add(asm.Add.Reg32(asm.R3, asm.R2), asm.Mul.Reg(asm.R1, asm.R3), asm.Add.Reg(hash, asm.R1))
}

// constant adds code that loads a constant of the C program. at is an offset in bytes from the start of the constant.
func (s *section) constant(to asm.Register, name string, at int, size asm.Size) {
	s.Add(
		asm.LoadMapValue(to, 0, s.Constants[name]+uint32(at)).WithReference(image.Constants),
		asm.LoadMem(to, to, 0, size),
	)
}
