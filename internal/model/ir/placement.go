// SPDX-License-Identifier: Apache-2.0

package ir

import "cmp"

// Placement is the stage that the operator wants for a rule: one of these words, or the name of the earliest allowed stage. It does not change
// verdicts.
type Placement string

// The placements that name no stage.
const (
	PlaceAuto     Placement = "auto"     // at the stage with the lowest cost, according to the cost model and the observed packets
	PlaceEarliest Placement = "earliest" // at the earliest possible stage
)

// Stage returns the name of the stage that the placement names, or "".
func (p Placement) Stage() string {
	if p == PlaceAuto || p == PlaceEarliest {
		return ""
	}
	return string(p)
}

// PlacementOf returns the placement of a rule. own reports whether the rule itself has one, or that of the program applies.
func (p *Program) PlacementOf(r *Rule) (of Placement, own bool) {
	return cmp.Or(r.Placement, p.Placement, PlaceAuto), r.Placement != ""
}
