// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// fibonacci spreads consecutive numbers as evenly as possible: it is 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
// So the samples of a reason never coincide with a periodic pattern in a sender's packets.
var fibonacci uint32 = 0x9e3779b9

// draw adds code that jumps to label if the packet is sampled. r0 points to the counter of the packet's reason. The counter times a factor, plus a
// secret number, is used in place of a random number, because a call of the kernel for a random number costs several times as much.
func (g *generator) draw(label string) {
	if g.Sampling.Share == 0 {
		return
	}
	g.Add(
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.Mul.Imm32(asm.R1, int32(fibonacci)),
		asm.Add.Imm32(asm.R1, int32(g.Sampling.Salt)),
	)
	if !g.Sampling.Adapts {
		g.Add(asm.JLT.Imm32(asm.R1, int32(g.Sampling.Share), label))
		return
	}
	g.Add(
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(image.TrafficShares), asm.LoadMem(asm.R2, asm.R2, 0, asm.Word),
		asm.JLT.Reg32(asm.R1, asm.R2, label),
	)
}

// sample adds code that copies a packet to user space. The packet has already been decided and counted. The code continues afterwards.
func (g *generator) sample(verdict uint8, label string) {
	g.Mark(label + "_sample")
	g.Add(
		asm.Mov.Reg(asm.R1, context),
		asm.LoadMem(asm.R2, asm.RFP, slotAt, asm.Word), asm.LSh.Imm(asm.R2, 8), asm.Or.Imm(asm.R2, int32(verdict)),
		asm.Call.Label(image.SampleTraffic),
		asm.Ja.Label(label+"_out"),
	)
}
