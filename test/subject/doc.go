// SPDX-License-Identifier: Apache-2.0

// Package subject helps to test policies: it compiles a policy for each target, and compares the verdicts of the targets on packets. The tests of the
// language and of all code generators use it. The tests of the compiler itself are in internal/compile and below.
//
//	s := subject.Lower(t, "rules: [{name: web, port: tcp/80, then: drop}]")
//	frames := s.Cases(t, "tcp 198.51.100.7:5 > 192.0.2.1:80  drop web\n") // fails unless ir.Eval says the same
//	s.Optimized().Agree(t, frames)                                       // fails unless the XDP program in the kernel does the same
package subject
