// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"math"
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// loop returns a function with a loop. The first instruction jumps over the loop, to the instruction at distance away. The head of the loop is in its
// middle. Each iteration ends by falling through to the head.
func loop(first asm.Instruction, away int) asm.Instructions {
	to := func(i asm.Instruction, offset int16) asm.Instruction { i.Offset = offset; return i }
	insns := asm.Instructions{
		first,
		to(asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)}, 1),
		asm.Add.Imm(asm.R0, 1),
		to(asm.Instruction{OpCode: asm.JGE.Op(asm.ImmSource), Dst: asm.R0, Constant: 9}, 1),
		to(asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)}, -3),
	}
	insns = append(insns, slices.Repeat(asm.Instructions{asm.Mov.Imm(asm.R0, 0)}, away+1-len(insns))...)
	return append(insns, asm.Return())
}

// TestBackEdges adds the jump that closes a loop. A jump over the loop then becomes longer by one instruction. If it already had the largest possible
// length, an error must be returned.
func TestBackEdges(t *testing.T) {
	short := func(offset int) asm.Instruction {
		return asm.Instruction{OpCode: asm.JEq.Op(asm.ImmSource), Dst: asm.R1, Offset: int16(offset)}
	}
	long := func(offset int) asm.Instruction {
		return asm.Instruction{OpCode: asm.OpCode(asm.Jump32Class).SetJumpOp(asm.Ja), Constant: int64(offset)}
	}
	for _, tt := range []struct {
		what  string
		first func(offset int) asm.Instruction
		away  int
		fits  bool
	}{
		{"near", short, 100, true},
		{"as far as there is space", short, math.MaxInt16 - 1, true},
		{"too far", short, math.MaxInt16, false},
		{"long", long, math.MaxInt16, true},
	} {
		insns := loop(tt.first(tt.away), tt.away)
		out, err := image.BackEdges(insns)
		if (err == nil) != tt.fits {
			t.Errorf("%s: error %v", tt.what, err)
		}
		if err != nil {
			continue
		}
		if len(out) != len(insns)+1 || out[0] != tt.first(tt.away+1) || out[1].Offset != 2 || out[5].Offset != -4 {
			t.Errorf("%s: %d instructions of %d, beginning with\n%v", tt.what, len(out), len(insns), out[:6])
		}
	}
}
