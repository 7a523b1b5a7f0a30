// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/xdp/entry"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// emitter collects the instructions of decide().
type emitter struct{ entry.Emitter }

// prologue stores the pointer to the packet in r6. It stores the context on the stack, at the offset context. The verifier assumes that the pointer
// to the packet may be null. In that case the default decides.
func (e *emitter) prologue(p *ir.Program, context int16) {
	e.Add(
		asm.StoreMem(asm.RFP, context, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R6, asm.R2),
		asm.JNE.Imm(asm.R6, 0, "packet"),
	)
	e.Add(decided(image.Decision(image.SlotDefault, uint8(p.Default)))...)
	e.Mark("packet")
}

// ask calls the test of the condition whose number is in r3, for the packet in r2. The result is in r0. The call changes r0 to r5.
func (e *emitter) ask(context int16) {
	e.Add(
		asm.LoadMem(asm.R1, asm.RFP, context, asm.DWord),
		asm.Call.Label(image.Condition),
	)
}

// decided returns instructions that return from decide() with a decision.
func decided(decision uint32) []asm.Instruction {
	return []asm.Instruction{
		asm.LoadImm(asm.R0, int64(decision), asm.DWord),
		asm.Return(),
	}
}
