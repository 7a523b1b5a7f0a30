// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// isOwn reports whether the dynamic set with this number is the set of the host's own addresses.
func (s *section) isOwn(number int32) bool {
	for i, n := range s.Dynamic {
		if int32(n) == number && s.Program.Sets[i].Dynamic.Local {
			return true
		}
	}
	return false
}

// own adds code that jumps to the label in if the destination is in a short list of own addresses (addrs.Dynamic.ShowOwn). All other addresses must
// then be looked up in the set. The code changes r1 to r4.
func (s *section) own(in string) {
	other := s.newLabel()
	if s.family.value == packet.FamilyIPv4 {
		s.Add(
			asm.LoadMem(asm.R1, base, s.family.dest, asm.Word), asm.JEq.Imm(asm.R1, 0, other),
			asm.LoadMapValue(asm.R2, 0, image.OwnOffset).WithReference(image.DynamicInfo),
		)
		for i := range int16(addrs.OwnIPv4) {
			s.Add(asm.LoadMem(asm.R3, asm.R2, 4*i, asm.Word), asm.JEq.Reg(asm.R1, asm.R3, in))
		}
		s.Mark(other)
		return
	}
	s.Add(
		asm.LoadMem(asm.R1, base, s.family.dest, asm.DWord), asm.JEq.Imm(asm.R1, 0, other),
		asm.LoadMem(asm.R4, base, s.family.dest+8, asm.DWord),
		asm.LoadMapValue(asm.R2, 0, image.OwnOffset).WithReference(image.DynamicInfo),
	)
	for i := range int16(addrs.OwnIPv6) {
		next := s.newLabel()
		s.Add(
			asm.LoadMem(asm.R3, asm.R2, addrs.OwnIPv6From+16*i, asm.DWord), asm.JNE.Reg(asm.R1, asm.R3, next),
			asm.LoadMem(asm.R3, asm.R2, addrs.OwnIPv6From+16*i+8, asm.DWord), asm.JEq.Reg(asm.R4, asm.R3, in),
		)
		s.Mark(next)
	}
	s.Mark(other)
}
