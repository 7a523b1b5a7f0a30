// Package match answers questions about what rules match. Can two rules match the same packet (overlap.go)? Which kinds of
// packets can a rule match, and what does it ask of each (kind.go, payload.go)? Rules go in as ir.Rule; no question changes
// one. Optimizing, planning and the code generators ask the same questions, so the answers are here once.
//
//	if !match.Overlap(program.Sets, &a, &b) { // no packet matches both: their order does not count
//		reorder()
//	}
package match
