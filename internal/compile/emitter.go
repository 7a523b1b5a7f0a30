package compile

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

// prologue keeps the packet in r6. The verifier thinks that it might be null; then the default decides.
func (e *emitter) prologue(p *ir.Program) {
	e.add(asm.Mov.Reg(asm.R6, asm.R1), asm.JNE.Imm(asm.R6, 0, "packet"))
	e.add(decided(xdp.SlotDefault, p.Default)...)
	e.mark("packet")
}

// decided returns from decide() with a verdict.
func decided(slot uint32, v ir.Verdict) []asm.Instruction {
	return []asm.Instruction{
		asm.LoadImm(asm.R0, int64(xdp.Decision(slot, uint8(v))), asm.DWord),
		asm.Return(),
	}
}
