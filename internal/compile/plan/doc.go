// SPDX-License-Identifier: Apache-2.0

// Package plan turns an ir.Program and a target into a Plan. A Plan says at which stage of the kernel each rule runs,
// and which lists of rules become a lookup. The package generates no code: compile/xdp, nftables and iptables do.
//
//	pl, err := plan.Hoist(program, plan.TargetNftables)
//	for _, step := range pl.At(plan.StageRaw) { // one rule, or a lookup that stands for many
//		write(step)
//	}
package plan
