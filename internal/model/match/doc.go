// SPDX-License-Identifier: Apache-2.0

// Package match answers questions about what rules match. Can two rules match the same packet (overlap.go)? Which kinds of packets can a rule match,
// and which tests does it have for each (kind.go, payload.go)? Its functions take ir.Rule values and do not change them. The optimizer, the planner
// and the code generators need the same answers, so the code is here once.
//
//	if !match.Overlap(program.Sets, &a, &b) { // no packet matches both: their order does not count
//		reorder()
//	}
package match
