// SPDX-License-Identifier: Apache-2.0

// This file collects the instructions of generated code.

package entry

import "github.com/cilium/ebpf/asm"

// Emitter collects instructions. It also keeps a label and a comment for the next instruction. Its zero value is empty.
type Emitter struct {
	Insns   asm.Instructions
	label   string
	comment string
}

// Mark sets the label of the next instruction. An instruction can have only one label. If there is already a label for it, Mark first adds a jump
// with offset 0 that gets the earlier label. The kernel removes such jumps (kernel/bpf/verifier.c, opt_remove_nops).
func (e *Emitter) Mark(label string) {
	if e.label != "" {
		e.Add(asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
	}
	e.label = label
}

// Say sets the comment of the next instruction, for listings.
func (e *Emitter) Say(comment string) { e.comment = comment }

// Add appends instructions. The first one gets the label and the comment that were set for the next instruction.
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
