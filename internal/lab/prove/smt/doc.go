// Package smt makes formulas over bit vectors, and asks z3 about them: a process that reads SMT-LIB 2.6 (logic QF_UFBV).
//
// Terms are kept once each (hash consing) and simplified as they are made: constants are folded, shifts by constants and byte orders become
// parts of words, and operations with a constant are applied to the leaves of a choice among constants. So most of what two programs have in
// common is the same term before z3 is asked.
//
//	c := smt.New()
//	x := c.Var("x", 8)
//	answer, model, err := c.Solve(ctx, smt.Limits{Time: time.Minute}, c.Eq(c.Add(x, x), c.Const(8, 1)))
package smt
