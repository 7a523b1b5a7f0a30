// Package compile lowers a policy to a program, whose meaning is ir.Eval. A policy.Policy goes in, and an ir.Program
// comes out: Lower resolves names, reads list files and turns services, guards and protections into rules; Optimize
// makes the program smaller without changing what it decides. Read compile.go first, whose Compile names all steps up
// to the code for a target, then lower.go. It touches no kernel.
//
//	program, notes, err := compile.Lower(p)                     // a *policy.Policy
//	program, _ = compile.Optimize(program)
//	out, err := compile.Compile(program, plan.TargetXDP, devices)
package compile
