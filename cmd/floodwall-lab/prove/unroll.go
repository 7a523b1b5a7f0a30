// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// mostRounds is the largest number of rounds of a loop of decide(): one for each bit of a word.
const mostRounds = 64

// unroll replaces each loop by copies of its body, one more than the largest number of rounds. A jump back from the last copy leads to an invalid
// instruction. If any packet reaches that instruction, the code has a fault. origin contains the index of the original instruction of each
// instruction.
func unroll(code asm.Instructions) (out asm.Instructions, origin []int, err error) {
	type loop struct{ from, to int }
	labels := map[string]int{}
	for i := range code {
		if s := code[i].Symbol(); s != "" {
			labels[s] = i
		}
	}
	var loops []loop
	for i := range code {
		to, ok := labels[code[i].Reference()]
		if !isJump(&code[i]) || !ok || to > i {
			continue
		}
		if code[i].OpCode.JumpOp() == asm.Ja || len(loops) > 0 && loops[len(loops)-1].to >= to {
			return nil, nil, fmt.Errorf("instruction %d: a loop in a loop, or one without an end", i)
		}
		loops = append(loops, loop{to, i})
	}
	add := func(in asm.Instruction, at int) { out, origin = append(out, in), append(origin, at) }
	jump := func(to string) asm.Instruction {
		return asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)}.WithReference(to)
	}
	at := 0
	for n, l := range loops {
		for ; at < l.from; at++ {
			add(code[at], at)
		}
		inside := func(label string) bool { i, ok := labels[label]; return ok && i >= l.from && i <= l.to }
		name := func(label string, round int) string { return fmt.Sprintf("%s, round %d of loop %d", label, round, n) }
		if l.to+1 == len(code) {
			return nil, nil, fmt.Errorf("instruction %d: the function ends without an exit", l.to)
		}
		behind := code[l.to+1].Symbol()
		if behind == "" {
			behind = fmt.Sprintf("behind loop %d", n)
			code = slices.Clone(code)
			code[l.to+1] = code[l.to+1].WithSymbol(behind)
		}
		for round := range mostRounds + 1 {
			for i := l.from; i <= l.to; i++ {
				in := code[i]
				if s := in.Symbol(); s != "" && round > 0 {
					in = in.WithSymbol(name(s, round))
				}
				switch to := in.Reference(); {
				case i == l.to && round == mostRounds:
					in = in.WithReference(tooManyRounds)
				case i == l.to:
					in = in.WithReference(name(to, round+1))
				case isJump(&in) && inside(to) && round > 0:
					in = in.WithReference(name(to, round))
				}
				add(in, i)
			}
			add(jump(behind), l.to)
		}
		at = l.to + 1
	}
	for ; at < len(code); at++ {
		add(code[at], at)
	}
	if len(loops) > 0 {
		add(asm.StoreMem(asm.RFP, 0, asm.RFP, asm.DWord).WithSymbol(tooManyRounds), len(code)-1) // an instruction that no program may execute
		add(asm.Return(), len(code)-1)
	}
	return out, origin, nil
}

const tooManyRounds = "too many rounds"
