// Package emit collects the instructions of generated code.
package emit

import "github.com/cilium/ebpf/asm"

// Emitter collects instructions, with labels and comments for those to come. Its zero value is empty.
type Emitter struct {
	Insns   asm.Instructions
	label   string
	comment string
}

// Mark labels the next instruction. Where another label waits for the same instruction, a jump that does nothing takes that one:
// the kernel leaves such jumps out (kernel/bpf/verifier.c, opt_remove_nops).
func (e *Emitter) Mark(label string) {
	if e.label != "" {
		e.Add(asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
	}
	e.label = label
}

// Say comments the next instruction in listings.
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
