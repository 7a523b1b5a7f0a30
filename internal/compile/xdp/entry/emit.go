// This file collects the instructions of generated code.

package entry

import "github.com/cilium/ebpf/asm"

// Emitter collects instructions, and keeps the label and the comment for the next one. Its zero value is empty.
type Emitter struct {
	Insns   asm.Instructions
	label   string
	comment string
}

// Mark labels the next instruction. An instruction has one label at most: if one is waiting already, Mark adds a jump
// with offset 0 that carries it. The kernel removes such jumps (kernel/bpf/verifier.c, opt_remove_nops).
func (e *Emitter) Mark(label string) {
	if e.label != "" {
		e.Add(asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
	}
	e.label = label
}

// Say adds a comment to the next instruction, for listings.
func (e *Emitter) Say(comment string) { e.comment = comment }

// Add appends instructions; the first takes the label and the comment that wait for one.
func (e *Emitter) Add(insns ...asm.Instruction) {
	if e.label != "" {
		insns[0] = insns[0].WithSymbol(e.label)
		e.label = ""
	}
	if e.comment != "" {
		insns[0] = insns[0].WithSource(asm.Comment(e.comment))
		e.comment = ""
	}
	e.Insns = append(e.Insns, insns...)
}
