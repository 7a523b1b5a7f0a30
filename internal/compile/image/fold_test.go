// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// TestFold checks which loads of a constant are replaced by the constant's value. All other loads must stay.
func TestFold(t *testing.T) {
	constants := map[string]*ebpf.VariableSpec{
		"count": {SectionName: ".rodata", Offset: 8, Value: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		"large": {SectionName: ".rodata", Offset: 32, Value: []byte{0xfe, 0xff, 0xff, 0xff}},
		"other": {SectionName: ".data", Offset: 64, Value: []byte{9, 9, 9, 9, 9, 9, 9, 9}},
	}
	address := func(offset uint32) asm.Instruction {
		return asm.LoadMapValue(asm.R1, 0, offset).WithReference(".rodata")
	}
	next := asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)}
	back := asm.Instruction{OpCode: asm.JEq.Op(asm.ImmSource), Dst: asm.R2, Offset: -2}
	for _, test := range []struct {
		what     string
		in, want asm.Instructions
	}{
		{"a word", asm.Instructions{address(8), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord)},
			asm.Instructions{asm.LoadImm(asm.R1, 0x0807060504030201, asm.DWord), next}},
		{"part of it", asm.Instructions{address(8), asm.LoadMem(asm.R1, asm.R1, 2, asm.Half)},
			asm.Instructions{asm.LoadImm(asm.R1, 0x0403, asm.DWord), next}},
		{"to another register", asm.Instructions{address(8), asm.LoadMem(asm.R2, asm.R1, 4, asm.Byte)},
			asm.Instructions{address(8), asm.Mov.Imm32(asm.R2, 5)}},
		{"more than an instruction holds", asm.Instructions{address(8), asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord)}, nil},
		{"through an address that a reading before needs",
			asm.Instructions{address(8), asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.LoadMem(asm.R1, asm.R1, 4, asm.Word)},
			asm.Instructions{address(8), asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.Mov.Imm32(asm.R1, 0x08070605)}},
		{"through an address that is copied before",
			asm.Instructions{address(8), asm.Mov.Reg(asm.R2, asm.R1), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord)}, nil},
		{"more than a positive number of an instruction", asm.Instructions{address(32), asm.LoadMem(asm.R2, asm.R1, 0, asm.Word)},
			asm.Instructions{address(32), asm.Mov.Imm32(asm.R2, -2)}},
		{"no constant", asm.Instructions{address(64), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord)}, nil},
		{"past its end", asm.Instructions{address(12), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord)}, nil},
		{"another address", asm.Instructions{address(8), asm.Add.Reg(asm.R1, asm.R2), asm.LoadMem(asm.R1, asm.R1, 0, asm.Byte)}, nil},
		{"two ways to it", asm.Instructions{address(8), asm.LoadMem(asm.R1, asm.R1, 0, asm.Byte), back}, nil},
	} {
		in := append(test.in, asm.Return())
		want := append(test.want, asm.Return())
		if test.want == nil {
			want = in
		}
		got := image.Fold(in, constants)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i].OpCode != want[i].OpCode || got[i].Dst != want[i].Dst ||
				got[i].Constant != want[i].Constant || got[i].Offset != want[i].Offset || got[i].Reference() != want[i].Reference() {
				t.Errorf("%s: got\n%v\nwant\n%v", test.what, got, want)
				break
			}
		}
	}
}
