// Package prove proves that the generated entry of the XDP program decides as ir.Program.Eval says, for every frame that it decides, and so do the rules
// that general() asks about the others. What is proved, and what is not, stands in docs/design/proof.md.
//
// A proof has two sides. machine.go executes the instructions for all frames at once, with what they read of the frame as variables: the code is
// one formula, of which frames end how. packet.go and meaning.go are packet.Decode and Eval as a formula. They share no code with the compiler, and
// tests compare them with Decode and Eval. prove.go asks package smt, which asks z3, for a frame for which the two differ.
//
// rules.go does so with decide(): rulesrun.go is the code, rulesmeaning.go is Eval of the content of struct packet, and conditions.go is what
// condition_holds() is asked. identifiers.go is packet.Datagrams.
//
// tables.go and classes.go prove the tables of addresses, by looking up every range between two boundaries. state.go, flood.go and assume.go say what
// functions in C and memory that changes are asked, and what holds of them. mutate.go makes mistakes on purpose, so that the proof is seen to
// fail. loaded.go reads the instructions of a program back from the kernel.
//
// The ruleset of nftables has a proof of its own, with the same formulas of the policy: netfilter.go. netmachine.go runs its chains, netexpr.go their
// expressions, netset.go and netstate.go its sets and what changes; networld.go says what is assumed. netmutate.go makes mistakes.
//
//	s, err := prove.Compile(program, false)
//	report, err := s.Prove(ctx, smt.Limits{}, nil)
package prove
