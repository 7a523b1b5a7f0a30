// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// maxInstructions is more than any packet needs. A run that exceeds it is in an endless loop. The verifier examines up to a million instructions;
// loops can execute more.
const maxInstructions = 10_000_000

// maxTailCalls is MAX_TAIL_CALL_CNT of linux/bpf.h.
const maxTailCalls = 33

// caller is the place where execution continues after a function.
type caller struct {
	pc    int
	saved [5]uint64 // registers 6 to 10
}

// cpu is the state of a run.
type cpu struct {
	*Machine
	*program
	r         [12]uint64 // the last is BPF_REG_AX, used in code that the verifier inserts
	pc        int
	callers   []caller
	tailCalls int
}

// execute runs the program until it returns.
func (m *Machine) execute() (uint64, error) {
	c := &cpu{Machine: m, program: m.program}
	c.r[1], c.r[10] = m.context.base, m.stack.base+stackFrame
	for done := false; !done; {
		if c.pc < 0 || c.pc >= len(c.instructions) {
			return 0, fmt.Errorf("instruction %d: the program has %d", c.pc, len(c.instructions))
		}
		if m.counts.Instructions++; m.counts.Instructions > maxInstructions {
			return 0, fmt.Errorf("still at work after %d instructions", maxInstructions)
		}
		at := c.pc
		c.visit()
		var err error
		if done, err = c.step(); err != nil {
			return 0, fmt.Errorf("instruction %d: %w", at, err)
		}
	}
	return c.r[0], nil
}

// visit counts the next instruction as executed.
func (c *cpu) visit() {
	times := c.executed[c.program]
	if times == nil {
		times = make([]int, len(c.instructions))
		c.executed[c.program] = times
	}
	times[c.pc]++
}

// step executes an instruction. The result done is true if the program has returned.
func (c *cpu) step() (done bool, err error) {
	i := c.instructions[c.pc]
	if int(i.dst) >= len(c.r) || int(i.src) >= len(c.r) {
		return false, fmt.Errorf("unknown register in %v", i.code)
	}
	switch i.code.Class() {
	case asm.ALUClass, asm.ALU64Class:
		c.r[i.dst], err = alu(i, c.r[i.dst], c.operand(i))
	case asm.JumpClass, asm.Jump32Class:
		return c.jump(i)
	case asm.LdClass:
		if !i.code.IsDWordLoad() {
			return false, fmt.Errorf("unknown load %v", i.code)
		}
		c.r[i.dst] = c.references[c.pc]
		c.pc++
	case asm.LdXClass:
		err = c.load(i)
	case asm.StClass:
		err = c.store(i, uint64(int64(i.imm)))
	case asm.StXClass:
		if i.code.Mode() == asm.AtomicMode {
			err = c.atomic(i)
		} else {
			err = c.store(i, c.r[i.src])
		}
	}
	c.pc++
	return false, err
}

// operand returns the second operand.
func (c *cpu) operand(i instruction) uint64 {
	if i.code.Source() == asm.RegSource {
		return c.r[i.src]
	}
	return uint64(int64(i.imm))
}

func (c *cpu) jump(i instruction) (done bool, err error) {
	switch {
	case i.code.JumpOp() == asm.Call:
		return false, c.call(i)
	case i.code.JumpOp() == asm.Exit:
		return c.exit(), nil
	case i.code.JumpOp() == asm.Ja && i.code.Class() == asm.Jump32Class: // by more than 16 bits
		c.pc += 1 + int(i.imm)
		return false, nil
	case i.code.JumpOp() == asm.Ja:
		c.pc += 1 + int(i.off)
		return false, nil
	}
	taken, err := holds(i, c.r[i.dst], c.operand(i))
	if taken {
		c.pc += int(i.off)
	}
	c.pc++
	return false, err
}

func (c *cpu) exit() (done bool) {
	if len(c.callers) == 0 {
		return true
	}
	last := c.callers[len(c.callers)-1]
	c.callers = c.callers[:len(c.callers)-1]
	copy(c.r[6:], last.saved[:])
	c.pc = last.pc
	return false
}

func (c *cpu) call(i instruction) error {
	if i.src == pseudoCall {
		return c.callOwn(i)
	}
	if i.src == 0 && i.imm == tailCall {
		return c.tailCall()
	}
	f := c.calls[c.pc]
	if f == nil {
		return fmt.Errorf("a call of %s, which is not emulated", c.names[c.pc])
	}
	c.counts.Helpers++
	result, err := f(c.Machine, [5]uint64(c.r[1:6]))
	if err != nil {
		return fmt.Errorf("%s: %w", c.names[c.pc], err)
	}
	c.r[0] = result
	c.pc++
	return nil
}

// callOwn calls a function of the program. The distance of the function is in 16 bits of the offset (jit_subprogs() of kernel/bpf/verifier.c), so in
// a longer program it would be ambiguous.
func (c *cpu) callOwn(i instruction) error {
	if len(c.callers)+1 >= maxCalls {
		return fmt.Errorf("more than %d calls under way", maxCalls)
	}
	if len(c.instructions) > 1<<15 {
		return fmt.Errorf("a call in a program of more than %d instructions", 1<<15)
	}
	c.counts.Calls++
	c.callers = append(c.callers, caller{c.pc + 1, [5]uint64(c.r[6:11])})
	c.r[10] += stackFrame
	c.pc += 1 + int(i.off)
	return nil
}

// tailCall emulates bpf_tail_call(context, programs, index). If there is no such program, execution continues after the call.
func (c *cpu) tailCall() error {
	t := c.byObject[c.r[2]]
	if t == nil || t.Type() != ebpf.ProgramArray {
		return fmt.Errorf("a tail call by %#x, which is no array of programs", c.r[2])
	}
	index := uint32(c.r[3])
	c.pc++
	var id uint32
	if index >= t.MaxEntries() || c.tailCalls >= maxTailCalls || t.Lookup(index, &id) != nil {
		return nil
	}
	next, err := c.tailProgram(ebpf.ProgramID(id))
	if err != nil {
		return err
	}
	c.tailCalls++
	c.counts.Calls++
	c.program, c.pc = next, 0
	return nil
}

// tailProgram opens the program of a tail call, once.
func (m *Machine) tailProgram(id ebpf.ProgramID) (*program, error) {
	if o := m.programs[id]; o != nil {
		return o, nil
	}
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, fmt.Errorf("program %d: %w", id, err)
	}
	defer p.Close()
	m.programs[id], err = m.openProgram(p)
	return m.programs[id], err
}

func (c *cpu) load(i instruction) error {
	if i.code.Mode() != asm.MemMode && i.code.Mode() != asm.MemSXMode {
		return fmt.Errorf("unknown load %v", i.code)
	}
	c.counts.Loads++
	v, _, err := c.number(c.r[i.src]+uint64(int64(i.off)), i.code.Size().Sizeof())
	if i.code.Mode() == asm.MemSXMode {
		unused := 64 - 8*i.code.Size().Sizeof()
		v = uint64(int64(v<<unused) >> unused)
	}
	c.r[i.dst] = v
	return err
}

func (c *cpu) store(i instruction, v uint64) error {
	if i.code.Mode() != asm.MemMode {
		return fmt.Errorf("unknown store %v", i.code)
	}
	r, err := c.setNumber(c.r[i.dst]+uint64(int64(i.off)), i.code.Size().Sizeof(), v)
	if err != nil {
		return err
	}
	if r.stack {
		c.counts.StackStores++
	} else {
		c.counts.Stores++
	}
	c.countShared(r)
	return nil
}

// countShared counts a write to memory that all CPUs share.
func (c *cpu) countShared(r *region) {
	if r != nil && r.shared {
		c.counts.Shared++
	}
}

// Atomic operations: the imm of the instruction (RFC 9669, 5.3).
const (
	atomicFetch   = 0x01
	atomicXchg    = 0xe0 | atomicFetch
	atomicCmpXchg = 0xf0 | atomicFetch
	atomicAcquire = 0x100 // a load
	atomicRelease = 0x110 // a store
)

// atomic executes an atomic operation.
func (c *cpu) atomic(i instruction) error {
	c.counts.Atomics++
	size := i.code.Size().Sizeof()
	if i.imm == atomicAcquire {
		v, _, err := c.number(c.r[i.src]+uint64(int64(i.off)), size)
		c.r[i.dst] = v
		return err
	}
	at := c.r[i.dst] + uint64(int64(i.off))
	if i.imm == atomicRelease {
		r, err := c.setNumber(at, size, c.r[i.src])
		c.countShared(r)
		return err
	}
	old, _, err := c.number(at, size)
	if err != nil {
		return err
	}
	next, err := exchanged(i, old, c.r[i.src], c.r[0])
	if err != nil {
		return err
	}
	switch {
	case i.imm == atomicCmpXchg:
		c.r[0] = old
	case i.imm&atomicFetch != 0:
		c.r[i.src] = old
	}
	r, err := c.setNumber(at, size, next)
	c.countShared(r)
	return err
}

// exchanged returns the value that an atomic operation writes.
func exchanged(i instruction, old, operand, compared uint64) (uint64, error) {
	if i.code.Size().Sizeof() < 4 {
		return 0, fmt.Errorf("an atomic operation on %d bytes", i.code.Size().Sizeof())
	}
	switch i.imm {
	case atomicXchg:
		return operand, nil
	case atomicCmpXchg:
		if i.code.Size().Sizeof() == 4 {
			compared = uint64(uint32(compared))
		}
		if old != compared {
			return old, nil
		}
		return operand, nil
	}
	op := asm.ALUOp(i.imm &^ atomicFetch)
	if i.imm>>8 != 0 || !slices.Contains([]asm.ALUOp{asm.Add, asm.Or, asm.And, asm.Xor}, op) {
		return 0, fmt.Errorf("unknown atomic operation %#x", i.imm)
	}
	return alu64(instruction{code: asm.OpCode(asm.ALU64Class) | asm.OpCode(op)}, old, operand)
}
