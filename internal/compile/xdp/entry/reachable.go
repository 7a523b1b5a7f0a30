// SPDX-License-Identifier: Apache-2.0

package entry

import "github.com/cilium/ebpf/asm"

// Reachable returns the function without its unreachable instructions, which the verifier would reject (kernel/bpf/verifier.c, check_cfg). Jumps must
// have labels.
func Reachable(insns asm.Instructions) (out asm.Instructions) {
	labels := map[string]int{}
	for i := range insns {
		if l := insns[i].Symbol(); l != "" {
			labels[l] = i
		}
	}
	seen := make([]bool, len(insns))
	waiting := []int{0}
	for len(waiting) > 0 {
		i := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		for ; i < len(insns) && !seen[i]; i++ {
			seen[i] = true
			in := &insns[i]
			if !in.OpCode.Class().IsJump() || in.OpCode.JumpOp() == asm.Call {
				continue
			}
			if to, ok := labels[in.Reference()]; ok {
				waiting = append(waiting, to)
			}
			if op := in.OpCode.JumpOp(); op == asm.Exit || op == asm.Ja && in.Reference() != "" {
				break
			}
		}
	}
	for i := range insns {
		if seen[i] {
			out = append(out, insns[i])
		}
	}
	return out
}
