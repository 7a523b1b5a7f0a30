// SPDX-License-Identifier: Apache-2.0

// Package prove proves that the generated entry of the XDP program decides like ir.Program.Eval, for every frame that the entry decides. It also proves
// that the code of the rules decides like Eval. general() uses this code for all other frames. docs/design/proof.md says which parts are proved, and
// which are not.
//
// A proof has two sides. machine.go executes the instructions symbolically for all frames at once: the bytes of the frame are variables. The result
// is a formula that says which frames end how. packet.go and meaning.go are packet.Decode and Eval as a formula. They share no code with the
// compiler, and tests compare them with Decode and Eval. prove.go asks z3, through package smt, for a frame for which the two sides differ.
//
// rules.go does the same for decide(). rulesrun.go executes the code, rulesmeaning.go is Eval for the content of struct packet, and conditions.go has
// the tests of condition_holds(). identifiers.go models packet.Datagrams.
//
// tables.go and classes.go prove the tables of addresses, with a lookup in every range between two boundaries. state.go, flood.go and assume.go model
// the functions in C and the memory that changes, and the assumptions about both. mutate.go makes mistakes on purpose, to show that the proof fails
// for them. loaded.go reads the instructions of a program back from the kernel.
//
// The ruleset of nftables has a proof of its own in netfilter.go, with the same formulas of the policy. netmachine.go executes its chains, netexpr.go
// their expressions, and netset.go and netstate.go its sets and its changing state. networld.go has the assumptions. netmutate.go makes mistakes.
//
//	s, err := prove.Compile(program, false)
//	report, err := s.Prove(ctx, smt.Limits{}, nil)
package prove
