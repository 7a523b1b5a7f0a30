// Package compile gives a policy its meaning. A policy.Policy goes in, and an ir.Program comes out: Lower resolves names, reads
// list files and turns services, guards and protections into rules; Optimize makes the program smaller without changing what it
// decides. Read lower.go first. Packages plan and codegen take the program from here.
package compile
