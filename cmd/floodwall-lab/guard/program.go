// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// program is instructions, with the targets of their references.
type program struct {
	instructions []instruction
	references   map[int]uint64   // addresses, by the index of the load
	calls        map[int]function // by the index of the call; nil: a tail call
	names        map[int]string   // names of the called functions, for errors
	places       places
}

// Numbers of helpers that stay in translated programs (enum bpf_func_id).
const tailCall = 12

// openProgram reads a program's instructions, and opens its maps.
func (m *Machine) openProgram(p *ebpf.Program) (*program, error) {
	instructions, err := translated(p)
	if err != nil {
		return nil, err
	}
	o := &program{instructions: instructions, references: map[int]uint64{}, calls: map[int]function{}, names: map[int]string{}}
	if o.places, err = placesOf(p); err != nil {
		return nil, err
	}
	for pc := 0; pc < len(instructions); pc++ {
		i := instructions[pc]
		switch {
		case i.code.IsDWordLoad() && pc+1 < len(instructions):
			if err := m.resolve(o, pc); err != nil {
				return nil, fmt.Errorf("instruction %d: %w", pc, err)
			}
			pc++
		case i.code.JumpOp() == asm.Call && i.src != pseudoCall:
			m.name(o, pc)
		}
	}
	return o, nil
}

// resolve gives a load of a 64-bit constant its value.
func (m *Machine) resolve(o *program, pc int) error {
	i, second := o.instructions[pc], o.instructions[pc+1].imm
	switch i.src {
	case 0:
		o.references[pc] = uint64(uint32(i.imm)) | uint64(uint32(second))<<32
		if pc+2 < len(o.instructions) && readsVariable(i, o.instructions[pc+2], o.references[pc]) {
			o.references[pc] = m.jiffies.base
		}
		return nil
	case pseudoMap, pseudoMapValue:
		t, err := m.openTable(ebpf.MapID(uint32(i.imm)))
		if err != nil {
			return err
		}
		o.references[pc] = t.object.base
		if i.src == pseudoMapValue {
			o.references[pc] += m.layout.arrayValues + uint64(uint32(second))
		}
		return nil
	}
	return fmt.Errorf("unknown kind %d of a constant", i.src)
}

// readsVariable reports whether a constant is the address of a kernel variable that the next instruction reads. The verifier replaces a call of
// bpf_jiffies64() by these two instructions, and no other call (kernel/bpf/verifier.c, do_misc_fixups).
func readsVariable(constant, next instruction, value uint64) bool {
	const (
		load64      = 0x79    // BPF_LDX | BPF_MEM | BPF_DW
		kernelSpace = 1 << 63 // on the emulated architectures, which have 64 bits
	)
	return value >= kernelSpace && next.code == load64 && next.src == constant.dst && next.off == 0
}

// name finds the called function. The kernel has put the function's distance from __bpf_call_base into the instruction. A function that is not
// emulated is an error only if a packet reaches its call.
func (m *Machine) name(o *program, pc int) {
	i := o.instructions[pc]
	if i.imm == tailCall && i.src == 0 {
		o.calls[pc], o.names[pc] = nil, "bpf_tail_call"
		return
	}
	o.names[pc] = fmt.Sprintf("the function at distance %d", i.imm)
	for _, name := range m.symbols.Called(int64(i.imm)) {
		o.names[pc] = name
		if f := functions[name]; f != nil {
			o.calls[pc] = f
			return
		}
	}
}
