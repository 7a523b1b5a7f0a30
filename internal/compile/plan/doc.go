// Package plan decides at which stage of the kernel each rule of a program runs. An ir.Program and a target go in, and a Plan
// comes out: for each rule its stage and the reason. Read target.go first, which has the stages and a table of what each target
// can; then hoist.go, which finds the earliest stages that keep the meaning of the policy, with fit.go for what a stage cannot
// serve; then place.go, which moves rules to where they cost least.
package plan
