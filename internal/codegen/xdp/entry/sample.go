package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/xdp"
)

// fibonacci is 2^32 divided by the golden ratio: the upper bits of products with it differ as much as can be where numbers are neighbors (Knuth,
// The Art of Computer Programming, 6.4). So the packets that are drawn of a reason are never in step with a sender that repeats itself.
var fibonacci uint32 = 0x9e3779b9

// draw jumps for one in so many packets, when r0 points to the counter of their reason. The counter, times a factor, plus a secret number,
// stands for a random number: the kernel's costs several times as much as all of this.
func (g *generator) draw(label string) {
	if g.Sampling.Share == 0 {
		return
	}
	g.Add(
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.Mul.Imm32(asm.R1, int32(fibonacci)),
		asm.Add.Imm32(asm.R1, int32(g.Sampling.Salt)),
		asm.JLT.Imm32(asm.R1, int32(g.Sampling.Share), label),
	)
}

// sample hands a packet out that is decided and counted, and goes on.
func (g *generator) sample(verdict uint8, label string) {
	g.Mark(label + "_sample")
	g.Add(
		asm.Mov.Reg(asm.R1, context),
		asm.LoadMem(asm.R2, asm.RFP, slotAt, asm.Word), asm.LSh.Imm(asm.R2, 8), asm.Or.Imm(asm.R2, int32(verdict)),
		asm.Call.Label(xdp.SampleTraffic),
		asm.Ja.Label(label+"_out"),
	)
}
