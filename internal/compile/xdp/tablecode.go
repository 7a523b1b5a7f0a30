// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// tableCode generates the body of decide() for tables. Register plan:
//
//	r6  the packet; then the bits of the summary whose words are not searched yet
//	r7  the number of the word that is searched
//	r8  the rows' first words combined; then the bits of the word that is searched
//	r9  the number of rounds, so that the verifier sees that the loop ends
//
// The stack holds the pointer to each dimension's row, from -8 down, and below these the values of the constants
// stackKey to stackPacket.
type tableCode struct {
	emitter
	*tables
}

// Stack offsets below those of the rows.
const (
	stackKey     = iota // of a map lookup
	stackContext        // of the program
	stackPacket         // while r6 has other data
)

func (c *tableCode) stack(what int) int16 { return rowSlot(len(c.dims) + what) }

func (t *tables) code() asm.Instructions {
	c := &tableCode{tables: t}
	c.prologue(c.program, c.stack(stackContext))
	if len(t.dims) == 0 {
		c.withoutRows()
		return c.Insns
	}
	if !c.conditions.none() {
		c.Add(asm.StoreMem(asm.RFP, c.stack(stackPacket), asm.R6, asm.DWord))
	}
	for i, d := range t.dims {
		c.selectRow(i, d)
	}
	if t.sums == 0 {
		c.oneWord()
	}
	for s := range t.sums {
		c.summary(s)
	}
	c.Mark("none")
	c.Say("default")
	c.Add(c.byDefault()...)
	c.result()
	return c.Insns
}

func (c *tableCode) byDefault() []asm.Instruction {
	return decided(image.Decision(image.SlotDefault, uint8(c.program.Default)))
}

// withoutRows adds code for rules that test no address or field. The first rule whose condition holds decides. A rule without a condition always
// decides.
func (c *tableCode) withoutRows() {
	for i := range c.program.Rules {
		number, conditional := c.conditions.of(i)
		if !conditional {
			c.Add(decided(c.decisions[i])...)
			return
		}
		next := fmt.Sprintf("after%d", i)
		c.Add(asm.Mov.Reg(asm.R2, asm.R6), asm.Mov.Imm(asm.R3, int32(number)))
		c.ask(c.stack(stackContext))
		c.Add(asm.JEq.Imm(asm.R0, 0, next))
		c.Add(decided(c.decisions[i])...)
		c.Mark(next)
	}
	c.Add(c.byDefault()...)
}

func rowSlot(i int) int16 { return int16(-8 * (i + 1)) }

// selectRow adds code that stores the pointer to the row of a dimension that the packet's value selects.
func (c *tableCode) selectRow(i int, d *dim) {
	c.Say("row of " + d.name)
	c.Add(asm.LoadMem(asm.R1, asm.R6, d.offset, asm.Word))
	if d.bit >= 0 {
		c.Add(asm.RSh.Imm(asm.R1, int32(d.bit)), asm.And.Imm(asm.R1, 1))
	} else {
		// The value is always below size, but the verifier does not know that.
		c.Add(asm.JGE.Imm(asm.R1, int32(d.size), "none"))
	}
	c.Add(
		asm.LSh.Imm(asm.R1, 1),
		asm.LoadMapValue(asm.R2, 0, uint32(2*d.start)).WithReference(image.Index),
		asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R1, asm.R2, 0, asm.Half),
	)
	if c.direct() {
		c.addressRow(d)
	} else {
		c.lookUpRow(d)
	}
	c.firstWord(i)
}

// firstWord adds code that combines the first word of the row at r0 with those of the earlier dimensions. The word contains all bits of the row, or
// is the first word of the summary.
func (c *tableCode) firstWord(i int) {
	if c.sums > 0 { // the row has further words
		c.Add(asm.StoreMem(asm.RFP, rowSlot(i), asm.R0, asm.DWord))
	}
	if i == 0 {
		c.Add(asm.LoadMem(asm.R8, asm.R0, 0, asm.DWord))
		return
	}
	c.Add(
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.And.Reg(asm.R8, asm.R1),
	)
}

// addressRow adds code that computes the address of row r1 of a dimension. It is used if all rows are in one value of the map.
func (c *tableCode) addressRow(d *dim) {
	c.Add(
		asm.JGE.Imm(asm.R1, int32(len(d.rows)), "none"), // the jump is never taken, but the verifier needs the test
		asm.Mul.Imm(asm.R1, int32(c.rowBytes())),
		asm.LoadMapValue(asm.R0, 0, uint32(d.base*c.rowBytes())).WithReference(image.Rows),
		asm.Add.Reg(asm.R0, asm.R1),
	)
}

// lookUpRow adds code that looks up row r1 of a dimension. It is used if each row is an entry of the map.
func (c *tableCode) lookUpRow(d *dim) {
	key := c.stack(stackKey)
	if d.base > 0 {
		c.Add(asm.Add.Imm(asm.R1, int32(d.base)))
	}
	c.Add(
		asm.StoreMem(asm.RFP, key, asm.R1, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference(image.Rows),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, int32(key)),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "none"),
	)
}

// oneWord adds code that selects the rule if all bits of a row are in one word.
func (c *tableCode) oneWord() {
	c.Say("the rules left by all rows")
	if !c.conditions.none() {
		c.Add(asm.LoadMem(asm.R2, asm.R6, image.First, asm.Word))
		c.fromOn(asm.R8, asm.R2, "none")
	}
	c.Add(
		asm.Mov.Imm(asm.R7, 0),
		asm.JNE.Imm(asm.R8, 0, "result"),
	)
}

// and adds code that combines a word of all rows by AND. load returns instructions that replace the pointer to a row in a register by the word.
func (c *tableCode) and(to asm.Register, load func(asm.Register) []asm.Instruction) {
	for i := range c.dims {
		r := to
		if i > 0 {
			r = asm.R1
		}
		c.Add(asm.LoadMem(r, asm.RFP, rowSlot(i), asm.DWord))
		c.Add(load(r)...)
		if i > 0 {
			c.Add(asm.And.Reg(to, asm.R1))
		}
	}
}

// summary adds code that searches the 64 words for which one word of the summaries stands.
func (c *tableCode) summary(s int) {
	loop, done := fmt.Sprintf("words%d", s), fmt.Sprintf("done%d", s)
	c.Say(fmt.Sprintf("summary of rules %d to %d", s*4096, min((s+1)*4096, len(c.alts))-1))
	if s == 0 {
		c.Add(asm.Mov.Reg(asm.R6, asm.R8))
	} else {
		c.and(asm.R6, func(r asm.Register) []asm.Instruction {
			return []asm.Instruction{asm.LoadMem(r, r, int16(8*s), asm.DWord)}
		})
	}
	c.Add(
		asm.Mov.Imm(asm.R9, 0), // reset, so that the verifier does not follow every earlier number of rounds
		asm.JEq.Imm(asm.R6, 0, done),
	)
	c.Mark(loop)
	c.lowestBit(asm.R7, asm.R6)
	c.Add(asm.And.Imm(asm.R7, int32(min(c.words, 64)-1))) // from here on the verifier knows the bounds of r7
	c.and(asm.R8, func(r asm.Register) []asm.Instruction {
		return []asm.Instruction{
			asm.Mov.Reg(asm.R2, asm.R7),
			asm.LSh.Imm(asm.R2, 3),
			asm.Add.Reg(r, asm.R2),
			asm.LoadMem(r, r, int16(8*(c.sums+64*s)), asm.DWord),
		}
	})
	if s > 0 {
		c.Add(asm.Add.Imm(asm.R7, int32(64*s)))
	}
	if !c.conditions.none() {
		c.skipBefore(s)
	}
	c.Add(
		asm.JNE.Imm(asm.R8, 0, "result"),
		asm.Mov.Reg(asm.R1, asm.R6), // clear the lowest set bit
		asm.Sub.Imm(asm.R1, 1),
		asm.And.Reg(asm.R6, asm.R1),
		asm.Add.Imm(asm.R9, 1),
		asm.JGE.Imm(asm.R9, 64, done),
		asm.JNE.Imm(asm.R6, 0, loop),
	)
	c.Mark(done)
	c.Add(asm.Mov.Imm(asm.R8, 0)) // the label needs an instruction
}

// fromOn adds code that clears the bits of a word below a number, which is in a register. If the number is beyond the word, the code jumps to none.
// It changes r1.
func (c *tableCode) fromOn(word, number asm.Register, none string) {
	c.Add(
		asm.JGE.Imm(number, 64, none),
		asm.Mov.Imm(asm.R1, -1),
		asm.LSh.Reg(asm.R1, number),
		asm.And.Reg(word, asm.R1),
	)
}

// skipBefore adds code that clears the bits in r8 below the first alternative that must be examined. r7 has the number of the word in r8.
func (c *tableCode) skipBefore(s int) {
	whole := fmt.Sprintf("whole%d", s)
	c.Add(
		asm.LoadMem(asm.R2, asm.RFP, c.stack(stackPacket), asm.DWord),
		asm.LoadMem(asm.R2, asm.R2, image.First, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.LSh.Imm(asm.R3, 6),
		asm.JLE.Reg(asm.R2, asm.R3, whole),
		asm.Sub.Reg(asm.R2, asm.R3),
		asm.Mov.Imm(asm.R1, 0),
		asm.JGE.Imm(asm.R2, 64, whole+"not"),
		asm.Mov.Imm(asm.R1, -1),
		asm.LSh.Reg(asm.R1, asm.R2),
	)
	c.Mark(whole + "not")
	c.Add(asm.And.Reg(asm.R8, asm.R1))
	c.Mark(whole)
}

// lowestBit adds code that computes the number of the lowest set bit in the register from. This number is the count of the bits below it (Hacker's
// Delight, 5-1 and 5-4). The code uses r1 and r2.
func (c *tableCode) lowestBit(to, from asm.Register) {
	mask := func(m uint64) []asm.Instruction {
		return []asm.Instruction{asm.LoadImm(asm.R2, int64(m), asm.DWord)}
	}
	c.Add(
		asm.Mov.Reg(to, from),
		asm.Sub.Imm(to, 1),
		asm.Mov.Reg(asm.R1, from),
		asm.Xor.Imm(asm.R1, -1),
		asm.And.Reg(to, asm.R1), // the bits below the lowest set bit
	)
	c.Add(mask(0x5555555555555555)...)
	c.Add(
		asm.Mov.Reg(asm.R1, to),
		asm.RSh.Imm(asm.R1, 1),
		asm.And.Reg(asm.R1, asm.R2),
		asm.Sub.Reg(to, asm.R1),
	)
	c.Add(mask(0x3333333333333333)...)
	c.Add(
		asm.Mov.Reg(asm.R1, to),
		asm.RSh.Imm(asm.R1, 2),
		asm.And.Reg(asm.R1, asm.R2),
		asm.And.Reg(to, asm.R2),
		asm.Add.Reg(to, asm.R1),
	)
	c.Add(mask(0x0f0f0f0f0f0f0f0f)...)
	c.Add(
		asm.Mov.Reg(asm.R1, to),
		asm.RSh.Imm(asm.R1, 4),
		asm.Add.Reg(to, asm.R1),
		asm.And.Reg(to, asm.R2),
	)
	c.Add(mask(0x0101010101010101)...)
	c.Add(asm.Mul.Reg(to, asm.R2), asm.RSh.Imm(to, 56))
}

// result adds code that returns the decision of the rule at the lowest set bit of r8. r7 has the number of the word.
func (c *tableCode) result() {
	c.Mark("result")
	c.Say("the first rule left")
	c.lowestBit(asm.R3, asm.R8)
	c.Add(
		asm.LSh.Imm(asm.R7, 6),
		asm.Add.Reg(asm.R3, asm.R7),
		asm.JGE.Imm(asm.R3, int32(64*c.words), "none"),
		asm.LSh.Imm(asm.R3, int32(bits.TrailingZeros(resultSize))),
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(image.Results),
		asm.Add.Reg(asm.R1, asm.R3),
		asm.LoadMem(asm.R0, asm.R1, resultDecision, asm.Word),
	)
	if !c.conditions.none() {
		c.condition()
	}
	c.Add(asm.Return())
}

// condition adds code that stores two values in the packet: the condition of the rule at r1, and the alternative with which the search continues if
// the condition does not hold.
func (c *tableCode) condition() {
	c.Add(
		asm.LoadMem(asm.R2, asm.RFP, c.stack(stackPacket), asm.DWord),
		asm.LoadMem(asm.R3, asm.R1, resultCondition, asm.Word),
		asm.StoreMem(asm.R2, image.NextCondition, asm.R3, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, resultNext, asm.Word),
		asm.StoreMem(asm.R2, image.First, asm.R3, asm.Word),
	)
}

// The layout of the map of results. Each alternative has three 32-bit words: the decision, the number of the condition,
// and the first alternative of the next rule.
const (
	resultSize      = 16
	resultDecision  = 0
	resultCondition = 4
	resultNext      = 8
)
