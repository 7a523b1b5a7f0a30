// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// code is a function without loops, whose jumps are resolved.
type code struct {
	insns  asm.Instructions
	target []int // of each jump: the index of the target instruction
	order  []int // reachable instructions in topological order: each comes after its predecessors
}

// newCode resolves the jumps of a function.
func newCode(insns asm.Instructions) (*code, error) {
	c := &code{insns: insns, target: make([]int, len(insns))}
	labels, slots, at := map[string]int{}, map[int]int{}, 0
	places := make([]int, len(insns))
	for i := range insns {
		if s := insns[i].Symbol(); s != "" {
			labels[s] = i
		}
		slots[at], places[i] = i, at
		at++
		if insns[i].OpCode.IsDWordLoad() {
			at++ // the instruction takes two slots
		}
	}
	for i := range insns {
		in := &insns[i]
		c.target[i] = -1
		if !isJump(in) {
			continue
		}
		to, ok := labels[in.Reference()]
		if in.Reference() == "" {
			to, ok = slots[places[i]+1+int(in.Offset)]
		}
		if !ok {
			return nil, fmt.Errorf("instruction %d: it jumps to no instruction", i)
		}
		c.target[i] = to
	}
	return c, c.sort()
}

// isJump reports whether an instruction is a jump. Calls and exits are no jumps.
func isJump(in *asm.Instruction) bool {
	op := in.OpCode.JumpOp()
	return in.OpCode.Class().IsJump() && op != asm.Call && op != asm.Exit
}

// next returns the successors of an instruction.
func (c *code) next(i int) (list []int) {
	in := &c.insns[i]
	if in.OpCode.Class().IsJump() && in.OpCode.JumpOp() == asm.Exit {
		return nil
	}
	if isJump(in) {
		list = append(list, c.target[i])
		if in.OpCode.JumpOp() == asm.Ja {
			return list
		}
	}
	return append(list, i+1)
}

// sort sorts the reachable instructions topologically. It returns an error for a loop, and for an end of the code without an exit.
func (c *code) sort() error {
	const (
		unseen = iota
		open
		done
	)
	mark := make([]byte, len(c.insns))
	type visit struct{ at, next int }
	stack := []visit{{}}
	mark[0] = open
	for len(stack) > 0 {
		v := &stack[len(stack)-1]
		following := c.next(v.at)
		if v.next == len(following) {
			mark[v.at] = done
			c.order = append(c.order, v.at)
			stack = stack[:len(stack)-1]
			continue
		}
		to := following[v.next]
		v.next++
		switch {
		case to >= len(c.insns):
			return fmt.Errorf("instruction %d: the function ends without an exit", v.at)
		case mark[to] == open:
			return fmt.Errorf("instruction %d: a loop", v.at)
		case mark[to] == unseen:
			mark[to] = open
			stack = append(stack, visit{at: to})
		}
	}
	slices.Reverse(c.order)
	return nil
}
