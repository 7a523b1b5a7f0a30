// Package plan decides at which stage of the kernel each rule of a program runs, and which lists of rules become a
// lookup. An ir.Program and a target go in, and a Plan comes out. It generates no code:
// compile/xdp, nftables and iptables do.
//
//	pl, err := plan.Hoist(program, plan.TargetNftables)
//	for _, step := range pl.At(plan.StageRaw) { // one rule, or a lookup that stands for many
//		write(step)
//	}
package plan
