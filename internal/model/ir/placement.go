package ir

import "cmp"

// Placement is the operator's wish at which stage a rule runs: one of these words, or the name of a stage, before which
// it must not run. It changes no verdict.
type Placement string

// The placements that name no stage.
const (
	PlaceAuto     Placement = "auto"     // where it costs least, by what is measured and observed
	PlaceEarliest Placement = "earliest" // as early as can be
)

// Stage is the name of the stage that is asked for, or "".
func (p Placement) Stage() string {
	if p == PlaceAuto || p == PlaceEarliest {
		return ""
	}
	return string(p)
}

// PlacementOf is the placement of a rule; own reports whether the rule has one of its own.
func (p *Program) PlacementOf(r *Rule) (of Placement, own bool) {
	return cmp.Or(r.Placement, p.Placement, PlaceAuto), r.Placement != ""
}
