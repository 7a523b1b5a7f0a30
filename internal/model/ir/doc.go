// SPDX-License-Identifier: Apache-2.0

// Package ir is the intermediate representation of a policy: a list of rules over the fields of a packet, the same for
// every target. Eval defines its meaning, and the targets are tested against Eval. The package does not decide where a
// rule runs: compile/plan does.
//
//	pkt := packet.Decode(frame)
//	verdict, reason := program.Eval(&pkt, ir.World{}) // the meaning of a policy
//	fmt.Print(verdict, program.ReasonName(reason))
package ir
