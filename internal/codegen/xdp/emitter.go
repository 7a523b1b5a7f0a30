package xdp

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// emitter collects instructions, with labels and comments for those to come.
type emitter struct {
	insns   asm.Instructions
	label   string
	comment string
}

// mark labels the next instruction.
func (e *emitter) mark(label string) { e.label = label }

// say comments the next instruction in listings.
func (e *emitter) say(comment string) { e.comment = comment }

// add appends instructions; the first takes the label and the comment that wait for one.
func (e *emitter) add(insns ...asm.Instruction) {
	if e.label != "" {
		insns[0] = insns[0].WithSymbol(e.label)
		e.label = ""
	}
	if e.comment != "" {
		insns[0] = insns[0].WithSource(asm.Comment(e.comment))
		e.comment = ""
	}
	e.insns = append(e.insns, insns...)
}

// prologue keeps the packet in r6 and, at a place of the stack, the context. The verifier thinks that the packet might be
// null; then the default decides.
func (e *emitter) prologue(p *ir.Program, context int16) {
	e.add(
		asm.StoreMem(asm.RFP, context, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R6, asm.R2),
		asm.JNE.Imm(asm.R6, 0, "packet"),
	)
	e.add(decided(xdp.Decision(xdp.SlotDefault, uint8(p.Default)))...)
	e.mark("packet")
}

// ask leaves in r0 whether the condition whose number is in r3 holds for the packet in r2. It changes r0 to r5.
func (e *emitter) ask(context int16) {
	e.add(
		asm.LoadMem(asm.R1, asm.RFP, context, asm.DWord),
		asm.Call.Label(xdp.Condition),
	)
}

// decided returns from decide() with a decision.
func decided(decision uint32) []asm.Instruction {
	return []asm.Instruction{
		asm.LoadImm(asm.R0, int64(decision), asm.DWord),
		asm.Return(),
	}
}
