// SPDX-License-Identifier: Apache-2.0

// Package compile lowers a policy.Policy to an ir.Program, whose meaning ir.Eval defines. Lower resolves names, reads
// list files and turns services, guards and protections into rules. Optimize makes the program smaller without changing
// its decisions. Read compile.go first: Compile there names all steps up to the code for a target. Then read lower.go.
// The package does not touch the kernel.
//
//	program, notes, err := compile.Lower(p)                     // a *policy.Policy
//	program, _ = compile.Optimize(program)
//	out, err := compile.Compile(program, plan.TargetXDP, devices)
package compile
