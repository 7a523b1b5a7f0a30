package xdp

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// tableCode generates the body of decide() for tables. Register plan:
//
//	r6  the packet; then the words of summary that are left to look into
//	r7  the number of the word looked into
//	r8  the rows' first words combined; then the bits of the word looked into
//	r9  rounds, so that the verifier sees the end of the loop
//
// The stack holds the pointer to each dimension's row, from -8 down, and below that what the enumeration says.
type tableCode struct {
	emitter
	*tables
}

// Stack offsets below those of the rows.
const (
	stackKey     = iota // of a map lookup
	stackContext        // of the program
	stackPacket         // when r6 has something else
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

// withoutRows is for rules without a test of an address or field. The first rule whose condition holds, or that has
// none, decides.
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

// selectRow stores the pointer to the row of the packet's value in a dimension.
func (c *tableCode) selectRow(i int, d *dim) {
	c.Say("row of " + d.name)
	c.Add(asm.LoadMem(asm.R1, asm.R6, d.offset, asm.Word))
	if d.bit >= 0 {
		c.Add(asm.RSh.Imm(asm.R1, int32(d.bit)), asm.And.Imm(asm.R1, 1))
	} else {
		// The value is always below size; the verifier does not know.
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

// firstWord combines the first word of the row at r0 with those of the dimensions before: all bits, or the first
// summary.
func (c *tableCode) firstWord(i int) {
	if c.sums > 0 { // there is more to read in the row
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

// addressRow computes the address of row r1 of a dimension, where all rows are in one value of the map.
func (c *tableCode) addressRow(d *dim) {
	c.Add(
		asm.JGE.Imm(asm.R1, int32(len(d.rows)), "none"), // never; for the verifier
		asm.Mul.Imm(asm.R1, int32(c.rowBytes())),
		asm.LoadMapValue(asm.R0, 0, uint32(d.base*c.rowBytes())).WithReference(image.Rows),
		asm.Add.Reg(asm.R0, asm.R1),
	)
}

// lookUpRow looks up row r1 of a dimension, if each row is an entry of the map.
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

// oneWord decides when all bits are in one word.
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

// and combines a word of all rows. load turns a register with the pointer to a row into the word.
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

// summary looks into the 64 words that one word of the summaries stands for.
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
		asm.Mov.Imm(asm.R9, 0), // anew: the verifier would follow every number of rounds before
		asm.JEq.Imm(asm.R6, 0, done),
	)
	c.Mark(loop)
	c.lowestBit(asm.R7, asm.R6)
	c.Add(asm.And.Imm(asm.R7, int32(min(c.words, 64)-1))) // known to the verifier from here on
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
		asm.Mov.Reg(asm.R1, asm.R6), // clear the lowest bit
		asm.Sub.Imm(asm.R1, 1),
		asm.And.Reg(asm.R6, asm.R1),
		asm.Add.Imm(asm.R9, 1),
		asm.JGE.Imm(asm.R9, 64, done),
		asm.JNE.Imm(asm.R6, 0, loop),
	)
	c.Mark(done)
	c.Add(asm.Mov.Imm(asm.R8, 0)) // something to carry the label
}

// fromOn clears the bits of a word below a number in a register, and jumps to none if the number is beyond the word. It
// uses r1.
func (c *tableCode) fromOn(word, number asm.Register, none string) {
	c.Add(
		asm.JGE.Imm(number, 64, none),
		asm.Mov.Imm(asm.R1, -1),
		asm.LSh.Reg(asm.R1, number),
		asm.And.Reg(word, asm.R1),
	)
}

// skipBefore clears the bits in r8, of the word in r7, below the first alternative to look at.
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

// lowestBit computes the number of the lowest bit of from that is set: the population of the bits below it (Hacker's
// Delight, 5-1 and 5-4). It uses r1 and r2.
func (c *tableCode) lowestBit(to, from asm.Register) {
	mask := func(m uint64) []asm.Instruction {
		return []asm.Instruction{asm.LoadImm(asm.R2, int64(m), asm.DWord)}
	}
	c.Add(
		asm.Mov.Reg(to, from),
		asm.Sub.Imm(to, 1),
		asm.Mov.Reg(asm.R1, from),
		asm.Xor.Imm(asm.R1, -1),
		asm.And.Reg(to, asm.R1), // the bits below the lowest
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

// result returns the decision of the rule at the lowest bit of r8 in word r7.
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

// condition stores the condition of the rule at r1 in the packet, and the alternative to go on with if it does not
// hold.
func (c *tableCode) condition() {
	c.Add(
		asm.LoadMem(asm.R2, asm.RFP, c.stack(stackPacket), asm.DWord),
		asm.LoadMem(asm.R3, asm.R1, resultCondition, asm.Word),
		asm.StoreMem(asm.R2, image.NextCondition, asm.R3, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, resultNext, asm.Word),
		asm.StoreMem(asm.R2, image.First, asm.R3, asm.Word),
	)
}

// Layout of the map of results. For each alternative it has, in 32-bit words, the decision, the condition if there is
// one, and the first alternative of the next rule.
const (
	resultSize      = 16
	resultDecision  = 0
	resultCondition = 4
	resultNext      = 8
)
