// SPDX-License-Identifier: Apache-2.0

// Package smt makes formulas over bit vectors, and asks z3 about them. z3 is a process that reads SMT-LIB 2.6 (logic QF_UFBV).
//
// Each term exists only once (hash consing), and is simplified when it is made. Constants are folded. Shifts by constants and byte swaps become
// extractions and concatenations. An operation with a constant is applied to the leaves of a choice among constants. So most parts that two programs
// have in common are the same term before z3 is asked.
//
//	c := smt.New()
//	x := c.Var("x", 8)
//	answer, model, err := c.Solve(ctx, smt.Limits{Time: time.Minute}, c.Eq(c.Add(x, x), c.Const(8, 1)))
package smt
