// Package subject is a policy under test: what it is compiled to, and what each target makes of packets. Tests of the language and of all generators
// use it. It is no test itself: those are beside what they test, in internal/compile and below.
//
//	s := subject.Lower(t, "rules: [{name: web, port: tcp/80, then: drop}]")
//	frames := s.Cases(t, "tcp 198.51.100.7:5 > 192.0.2.1:80  drop web\n") // what ir.Eval says
//	s.Optimized().Agree(t, frames)                                       // and what the kernel does
package subject
