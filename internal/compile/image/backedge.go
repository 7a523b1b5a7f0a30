// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// backEdges adds a jump to the next instruction where the body of a loop falls through to the loop's head. Kernels
// before 6.5 or so accept a loop only if a jump closes it
// (https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/verifier.c, push_insn: loop_ok is false for a fall-through).
// If clang puts the head in the middle of a loop, no jump closes it. The JIT removes such jumps. Jumps that clang made
// have offsets. Jumps in generated code have labels, and are not changed. It returns an error if an offset no longer
// fits its field.
func backEdges(insns asm.Instructions) (asm.Instructions, error) {
	var out asm.Instructions
	for start := 0; start < len(insns); {
		end := start + 1
		for end < len(insns) && btf.FuncMetadata(&insns[end]) == nil {
			end++
		}
		closed, err := newFlow(insns[start:end]).closed()
		if err != nil {
			return nil, fmt.Errorf("closing the loops of %s: %w", insns[start].Symbol(), err)
		}
		out = append(out, closed...)
		start = end
	}
	return out, nil
}

// flow is the control flow graph of a function. Instructions are named by their index in insns.
type flow struct {
	insns asm.Instructions
	at    []int // the position of each instruction, in units of jump offsets; a 64-bit immediate takes two units
	jumps []int // the target of each jump, -1 for other instructions
}

func newFlow(insns asm.Instructions) *flow {
	f := &flow{insns: insns, jumps: make([]int, len(insns))}
	index := map[int]int{}
	at := 0
	for i, in := range insns {
		index[at] = i
		f.at = append(f.at, at)
		at += int(in.Size()) / asm.InstructionSize
	}
	for i, in := range insns {
		f.jumps[i] = -1
		if isJump(in) && in.Reference() == "" {
			f.jumps[i] = index[f.at[i]+1+jumpOffset(in)]
		}
	}
	return f
}

// isJump reports whether an instruction may continue at another place in its function.
func isJump(in asm.Instruction) bool {
	op := in.OpCode.JumpOp()
	return in.OpCode.Class().IsJump() && op != asm.Call && op != asm.Exit
}

// jumpOffset returns the offset of a jump. An offset of more than 16 bits is in the immediate (gotol).
func jumpOffset(in asm.Instruction) int {
	if isLong(in) {
		return int(in.Constant)
	}
	return int(in.Offset)
}

func isLong(in asm.Instruction) bool {
	return in.OpCode.Class() == asm.Jump32Class && in.OpCode.JumpOp() == asm.Ja
}

// farther adds by to the offset of a jump. It returns an error if the sum does not fit into the offset field.
func farther(in asm.Instruction, by int) (asm.Instruction, error) {
	offset := jumpOffset(in) + by
	switch {
	case isLong(in) && offset == int(int32(offset)):
		in.Constant = int64(offset)
	case !isLong(in) && offset >= math.MinInt16 && offset <= math.MaxInt16:
		in.Offset = int16(offset)
	default:
		return in, fmt.Errorf("a jump over %d instructions is too far", offset)
	}
	return in, nil
}

// closed returns the function with an added jump before each loop head that is reached by fall-through.
func (f *flow) closed() (asm.Instructions, error) {
	heads := map[int]bool{}
	for _, to := range f.jumps {
		if to > 0 && !heads[to] && !isJump(f.insns[to-1]) && f.insns[to-1].OpCode.JumpOp() != asm.Exit && f.reaches(to, to-1) {
			heads[to] = true
		}
	}
	if len(heads) == 0 {
		return f.insns, nil
	}
	moved := make([]int, len(f.insns)) // the number of jump offset units by which each instruction moves towards the end
	var out asm.Instructions
	for i, in := range f.insns {
		if heads[i] {
			out = append(out, asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
		}
		moved[i] = len(out) - i
		out = append(out, in)
	}
	for i, to := range f.jumps {
		if to < 0 {
			continue
		}
		jump := &out[i+moved[i]]
		var err error
		if *jump, err = farther(*jump, moved[to]-moved[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// reaches reports whether control can flow from one instruction to another.
func (f *flow) reaches(from, to int) bool {
	seen := make([]bool, len(f.insns))
	waiting := []int{from}
	for len(waiting) > 0 {
		i := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		if i < 0 || i >= len(f.insns) || seen[i] {
			continue
		}
		if i == to {
			return true
		}
		seen[i] = true
		op := f.insns[i].OpCode
		if f.jumps[i] >= 0 {
			waiting = append(waiting, f.jumps[i])
		}
		if !(op.Class().IsJump() && (op.JumpOp() == asm.Ja || op.JumpOp() == asm.Exit)) {
			waiting = append(waiting, i+1)
		}
	}
	return false
}
