// SPDX-License-Identifier: Apache-2.0

package image

import (
	"math"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// constantsMap is the section of the C program's constants.
const constantsMap = ".rodata"

// fold replaces reads of constants by their values. The verifier knows the values and removes dead branches, but it
// keeps the reads, which would cost time for every packet. The number of instructions stays the same: a removed
// instruction becomes a jump to the next one. The kernel removes such jumps (kernel/bpf/verifier.c, opt_remove_nops).
func fold(insns asm.Instructions, constants map[string]*ebpf.VariableSpec) asm.Instructions {
	known := constantBytes(constants)
	out := make(asm.Instructions, 0, len(insns))
	for start := 0; start < len(insns); {
		end := start + 1
		for end < len(insns) && btf.FuncMetadata(&insns[end]) == nil {
			end++
		}
		out = append(out, newFolder(insns[start:end], known).fold()...)
		start = end
	}
	return out
}

// constantBytes returns the bytes of the constants by their offset in the section.
func constantBytes(constants map[string]*ebpf.VariableSpec) map[uint32]byte {
	known := map[uint32]byte{}
	for _, v := range constants {
		if v.SectionName == constantsMap {
			for i, b := range v.Value {
				known[v.Offset+uint32(i)] = b
			}
		}
	}
	return known
}

// folder folds the constants of one function.
type folder struct {
	insns  asm.Instructions
	target []bool // for each instruction: whether it is a jump target
	known  map[uint32]byte
}

func newFolder(insns asm.Instructions, known map[uint32]byte) *folder {
	f := &folder{insns: slices.Clone(insns), target: make([]bool, len(insns)), known: known}
	for i, to := range newFlow(insns).jumps {
		if to >= 0 {
			f.target[to] = true
		}
		if i > 0 && insns[i].Symbol() != "" {
			f.target[i] = true
		}
	}
	return f
}

func (f *folder) fold() asm.Instructions {
	for i := range f.insns {
		if in := &f.insns[i]; in.IsLoadFromMap() && in.Reference() == constantsMap && in.Src == asm.PseudoMapValue {
			f.follow(i)
		}
	}
	return f.insns
}

// follow replaces the reads of the constant whose address instruction i loads, up to the first jump or jump target. It also replaces the load of the
// address if the register is overwritten by such a read before any other instruction uses it.
func (f *folder) follow(i int) {
	address := f.insns[i]
	needed := false
	for j := i + 1; j < len(f.insns) && !f.target[j]; j++ {
		in := f.insns[j]
		value, ok := f.read(in, address)
		switch {
		case ok && in.Dst == address.Dst && !needed:
			f.put(i, asm.LoadImm(in.Dst, int64(value), asm.DWord))
			f.put(j, asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
			return
		case ok && value <= math.MaxUint32:
			f.put(j, asm.Mov.Imm32(in.Dst, int32(uint32(value)))) // Mov.Imm32 clears the upper half
		case in.Src == address.Dst:
			needed = true
		}
		if in.OpCode.Class().IsJump() || in.Dst == address.Dst {
			return
		}
	}
}

// put replaces an instruction, and keeps its metadata.
func (f *folder) put(i int, in asm.Instruction) {
	in.Metadata = f.insns[i].Metadata
	f.insns[i] = in.WithReference("")
}

// read returns the value that an instruction reads from the constant whose address was loaded.
func (f *folder) read(in, address asm.Instruction) (value uint64, ok bool) {
	if in.OpCode.Class() != asm.LdXClass || in.OpCode.Mode() != asm.MemMode || in.Src != address.Dst {
		return 0, false
	}
	place := uint32(address.Constant>>32) + uint32(in.Offset)
	for i := range uint32(in.OpCode.Size().Sizeof()) {
		b, ok := f.known[place+i]
		if !ok {
			return 0, false
		}
		value |= uint64(b) << (8 * i)
	}
	return value, true
}
