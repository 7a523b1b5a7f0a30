// Package ir is what a policy means: a list of rules over the fields of a packet, the same for every target. Eval is
// the definition of that meaning; what the targets do is tested against it.
// It does not say where a rule runs: compile/plan does.
//
//	pkt := packet.Decode(frame)
//	verdict, reason := program.Eval(&pkt, ir.World{}) // the meaning of a policy
//	fmt.Print(verdict, program.ReasonName(reason))
package ir
