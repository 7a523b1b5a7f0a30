// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
)

// mutant is a copy of the code or of a table with one mistake.
type mutant struct {
	class string
	at    int // the instruction; -1: the mistake is in a table
	text  string
	code  asm.Instructions  // nil: the mistake is in the tables
	table map[string][]byte // nil: the mistake is in the code
}

// inverted maps conditions to their opposites. near maps conditions to conditions that differ for one value.
var (
	inverted = map[asm.JumpOp]asm.JumpOp{
		asm.JEq: asm.JNE, asm.JNE: asm.JEq, asm.JGT: asm.JLE, asm.JLE: asm.JGT, asm.JGE: asm.JLT, asm.JLT: asm.JGE, asm.JSGE: asm.JSLT, asm.JSGT: asm.JSLE,
	}
	near = map[asm.JumpOp]asm.JumpOp{asm.JGT: asm.JGE, asm.JGE: asm.JGT, asm.JLT: asm.JLE, asm.JLE: asm.JLT, asm.JSet: asm.JEq}
)

// mutantsOf returns all mutants of an instruction.
func mutantsOf(code asm.Instructions, at int) (list []mutant) {
	in := code[at]
	add := func(class, text string, change func(*asm.Instruction)) {
		changed := slices.Clone(code)
		change(&changed[at])
		list = append(list, mutant{class: class, at: at, text: fmt.Sprintf("instruction %d, %v: %s", at, in, text), code: changed})
	}
	constant := func(class string, by ...int64) {
		for _, n := range by {
			add(class, fmt.Sprintf("%+d", n), func(i *asm.Instruction) { i.Constant += n })
		}
	}
	op := in.OpCode
	switch class := op.Class(); {
	case isJump(&in) && op.JumpOp() == asm.Ja:
		list = append(list, targets(code, at)...)
	case isJump(&in):
		if op.Source() == asm.ImmSource {
			constant("bound", 1, -1)
		}
		if other, ok := inverted[op.JumpOp()]; ok {
			add("condition", "inverted", func(i *asm.Instruction) { i.OpCode = op.SetJumpOp(other) })
		}
		if other, ok := near[op.JumpOp()]; ok {
			add("condition", "its neighbour", func(i *asm.Instruction) { i.OpCode = op.SetJumpOp(other) })
		}
		list = append(list, targets(code, at)...)
	case class.IsALU() && op.ALUOp() == asm.Swap:
		add("missing", "no change of the byte order", nop)
	case class.IsALU() && op.ALUOp() == asm.And && op.Source() == asm.ImmSource:
		add("missing", "no mask", nop)
		add("constant", "another mask", func(i *asm.Instruction) { i.Constant ^= 1 })
		add("constant", "a shorter mask", func(i *asm.Instruction) { i.Constant >>= 1 })
	case class.IsALU() && op.Source() == asm.ImmSource:
		add("missing", "left out", nop)
		constant("constant", 1, -1)
	case class.IsALU():
		add("missing", "left out", nop)
	case class == asm.LdXClass:
		add("offset", "a byte further", func(i *asm.Instruction) { i.Offset++ })
		add("offset", "its size further", func(i *asm.Instruction) { i.Offset += int16(op.Size().Sizeof()) })
		add("offset", "a byte before", func(i *asm.Instruction) { i.Offset-- })
		if op.Size() == asm.Word || op.Size() == asm.Half {
			add("size", "half as long", func(i *asm.Instruction) {
				i.OpCode = op.SetSize(map[asm.Size]asm.Size{asm.Word: asm.Half, asm.Half: asm.Byte}[op.Size()])
			})
		}
	case class == asm.StClass:
		constant("slot", 1, -1)
	case class == asm.StXClass:
		add("missing", "not stored", nop)
		add("offset", "4 bytes further", func(i *asm.Instruction) { i.Offset += 4 })
	case op.IsDWordLoad() && in.Src == asm.PseudoMapValue:
		add("table", "16 bytes further", func(i *asm.Instruction) { i.Constant += 16 << 32 })
		add("table", "a byte further", func(i *asm.Instruction) { i.Constant += 1 << 32 })
	case op.IsDWordLoad() && in.Src == 0:
		constant("constant", 1, -1)
		add("constant", "a bit more or less", func(i *asm.Instruction) { i.Constant ^= 1 << 17 })
	}
	return list
}

// nop replaces an instruction by a jump to the next instruction.
func nop(i *asm.Instruction) {
	meta := i.Metadata
	*i = asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Metadata: meta}
	*i = i.WithReference("")
}

// targets returns mutants of a jump with another target: the targets of the jumps before and after the jump, and the next instruction.
func targets(code asm.Instructions, at int) (list []mutant) {
	to := func(label string) {
		if label == "" || label == code[at].Reference() {
			return
		}
		changed := slices.Clone(code)
		changed[at] = changed[at].WithReference(label)
		list = append(list, mutant{class: "jump", at: at, text: fmt.Sprintf("instruction %d, %v: to %s", at, code[at], label), code: changed})
	}
	for _, step := range []int{-1, 1} {
		for i := at + step; i >= 0 && i < len(code); i += step {
			if isJump(&code[i]) && code[i].Reference() != "" && code[i].Reference() != code[at].Reference() {
				to(code[i].Reference())
				break
			}
		}
	}
	changed := slices.Clone(code)
	nop(&changed[at])
	return append(list, mutant{class: "missing", at: at, text: fmt.Sprintf("instruction %d, %v: no jump", at, code[at]), code: changed})
}

// tableMutant changes a bit of a byte in one of some tables, usually of a byte that is not 0. It chooses each table with the same probability, because
// some are small. It returns false if all of them are empty.
func (s *Subject) tableMutant(r *rand.Rand, names []string) (m mutant, ok bool) {
	memory := s.world.tables.memory
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(memory[name]) == 0 })
	if len(names) == 0 {
		return m, false
	}
	name := names[r.IntN(len(names))]
	at := r.IntN(len(memory[name]))
	for i := range min(len(memory[name]), 1<<16) {
		if memory[name][(at+i)%len(memory[name])] != 0 {
			at = (at + i) % len(memory[name])
			break
		}
	}
	bit := r.IntN(8)
	changed := maps.Clone(memory)
	changed[name] = slices.Clone(memory[name])
	changed[name][at] ^= 1 << bit
	return mutant{class: "table word", at: -1, text: fmt.Sprintf("%s: bit %d of byte %d", name, bit, at), table: changed}, true
}

// listMaps are the tables of lists that the proof reads.
var listMaps = []string{
	image.Listed, image.Reflectors, image.Filter4, image.Filter6, image.HostFilter4, image.Index4, image.Background4, image.Lines4, image.Full4,
	image.Hosts4, image.HostClasses4, image.Buckets6,
}

// MutantCounts contains the results for the mutants of a class.
type MutantCounts struct {
	Made       int `json:"made"`
	Caught     int `json:"caught"`     // number of mutants for which a frame was found, or whose code the verifier would refuse
	Equivalent int `json:"equivalent"` // number of mutants that were proved to decide every frame as before; they may leave more frames to general()
	GaveUp     int `json:"gave-up"`
}

// Mutants makes n mutants, and proves or refutes each. gaveUp contains the mutants for which z3 found no answer.
func (s *Subject) Mutants(ctx context.Context, l smt.Limits, n int, r *rand.Rand) (counts map[string]*MutantCounts, gaveUp []string, err error) {
	reached, err := s.reached()
	if err != nil {
		return nil, nil, err
	}
	counts, _, gaveUp, err = makeMutants(ctx, n, func() (tried, bool) {
		m, ok := s.mutant(r, reached)
		return tried{m.class, m.text, func() (smt.Answer, string) { return s.refute(ctx, l, m, reached), "" }}, ok
	})
	return counts, gaveUp, err
}

// tried is a randomly chosen mutant. refute searches for a wrong decision. If refute gives up, it may return a reason in addition to z3's.
type tried struct {
	class, text string
	refute      func() (smt.Answer, string)
}

// makeMutants makes n mutants with draw, and proves or refutes each. harmless contains the proved ones. gaveUp contains those that could be neither
// proved nor refuted.
func makeMutants(ctx context.Context, n int, draw func() (tried, bool)) (counts map[string]*MutantCounts, harmless, gaveUp []string, err error) {
	counts = map[string]*MutantCounts{}
	for range n {
		m, ok := draw()
		if !ok {
			continue
		}
		c := counts[m.class]
		if c == nil {
			c = &MutantCounts{}
			counts[m.class] = c
		}
		c.Made++
		switch answer, why := m.refute(); answer {
		case smt.Satisfiable:
			c.Caught++
		case smt.Unsatisfiable:
			c.Equivalent++
			harmless = append(harmless, m.text)
		default:
			c.GaveUp++
			if why != "" {
				why = ": " + why
			}
			gaveUp = append(gaveUp, m.text+why)
		}
		if ctx.Err() != nil {
			return counts, harmless, gaveUp, ctx.Err()
		}
	}
	return counts, harmless, gaveUp, nil
}

// tableShare is the share of mutants of tables: one mutant in this number. It is small because all tables are proved again for each such mutant.
const tableShare = 32

// mutant returns a random mutant: of an instruction that at least one frame reaches, or, once in tableShare, of a table.
func (s *Subject) mutant(r *rand.Rand, reached map[int][]kind) (mutant, bool) {
	if r.IntN(tableShare) == 0 {
		if m, ok := s.tableMutant(r, listMaps); ok {
			return m, true
		}
	}
	places := slices.Sorted(maps.Keys(reached))
	for range 100 {
		if list := mutantsOf(s.entry, places[r.IntN(len(places))]); len(list) > 0 {
			return list[r.IntN(len(list))], true
		}
	}
	return mutant{}, false
}

// reached returns, for each instruction, the kinds of frames that reach it.
func (s *Subject) reached() (map[int][]kind, error) {
	out := map[int][]kind{}
	for _, k := range kinds() {
		q, err := s.query(k, s.entry)
		if err != nil {
			return nil, err
		}
		for at := range q.machine.visited {
			out[at] = append(out[at], k)
		}
	}
	return out, nil
}

// refute searches for a frame that a mutant decides wrongly. If the model cannot execute the code, the verifier would refuse the code.
func (s *Subject) refute(ctx context.Context, l smt.Limits, m mutant, reached map[int][]kind) smt.Answer {
	changed, list := *s, kinds()
	if m.code != nil {
		changed.entry, list = m.code, reached[m.at]
	} else {
		world := *s.world
		world.tables = &tables{m.table, s.world.tables.constants}
		found, err := proveTables(s.Program, world.tables)
		if err != nil {
			return smt.Satisfiable
		}
		world.classes, world.content = found, maps.Clone(s.world.content)
		for _, name := range frozen {
			if m.table[name] != nil {
				world.content[name] = m.table[name]
			}
		}
		changed.world = &world
	}
	answer := smt.Unsatisfiable
	for _, k := range list {
		q, err := changed.query(k, changed.entry)
		if err != nil {
			return smt.Satisfiable
		}
		switch a, _, _ := q.solve(ctx, l); a {
		case smt.Satisfiable:
			return a
		case smt.Unknown:
			answer = a
		}
	}
	if m.code != nil && len(list) > 2 { // the instruction comes before the rules, where the code distinguishes the kinds of frames
		if o := changed.Outside(ctx, l); o.Answer != smt.Unsatisfiable {
			return o.Answer
		}
	}
	return answer
}
