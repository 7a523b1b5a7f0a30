// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// begin returns the earliest stage that can run rule i, regardless of other rules. The stage is not before the one that the rule's placement or
// pl.From names.
func (pl *Plan) begin(i int) (Assignment, *StageError) {
	r := &pl.Program.Rules[i]
	place, err := pl.earliest(r)
	if err != nil || r.Protect > 0 { // a protection has a stage of its own
		return place, err
	}
	if h, ok := pl.held[i]; ok {
		place = pl.later(r, place, h.from, h.why)
	}
	if pl.From != nil && pl.From[i] != "" {
		return pl.later(r, place, pl.From[i], "by its costs"), nil
	}
	wish, own := pl.Program.PlacementOf(r)
	from := pl.stageNamed(wish.Stage())
	if from == "" {
		return place, nil
	}
	why := fmt.Sprintf("placement: %s", wish)
	if key, reason := pl.Unfit(r, from); key != "" && own && from == Stage(wish) {
		return Assignment{}, pl.misplaced(r, why, key, reason)
	}
	return pl.later(r, place, from, why), nil
}

// later returns the assignment of a rule that must not run before the stage from. It returns place unchanged if place is not before from, or if no
// stage from there on can run the rule.
func (pl *Plan) later(r *ir.Rule, place Assignment, from Stage, why string) Assignment {
	if !pl.after(from, place.Stage) {
		return place
	}
	at, key, _ := pl.fitFrom(r, from)
	if key != "" {
		return place
	}
	return Assignment{Stage: at, Why: why}
}

// stageNamed returns the stage with a name. If the target does not have that stage, it returns the next one that the target has. For the name "" it
// returns "".
func (pl *Plan) stageNamed(name string) Stage {
	if name == "" {
		return ""
	}
	return pl.Target.stages()[slices.IndexFunc(pl.Target.stages(), func(s Stage) bool { return !pl.after(Stage(name), s) })]
}

// misplaced returns the error that a rule's placement names a stage that cannot run the rule.
func (pl *Plan) misplaced(r *ir.Rule, placement, key, reason string) *StageError {
	remedy := "leave placement out"
	if i := slices.IndexFunc(pl.Target.stages(), func(s Stage) bool { k, _ := pl.Unfit(r, s); return k == "" }); i >= 0 {
		remedy = fmt.Sprintf("write placement: %s, or %s", pl.Target.stages()[i], remedy)
	}
	return pl.refuse(r, placement, fmt.Sprintf("that stage cannot serve %s: %s", key, reason), remedy)
}

// PlacementNotes returns notes about placements that name a stage that the target does not have.
func PlacementNotes(p *ir.Program, t Target) (notes []string) {
	pl := Plan{Target: t, Program: p}
	lacks := func(of ir.Placement) bool {
		return of.Stage() != "" && !slices.Contains(t.stages(), Stage(of.Stage()))
	}
	say := func(who string, of ir.Placement) {
		notes = append(notes, fmt.Sprintf("%splacement: %s: %s has no such stage, so the next one it has, %s, counts",
			who, of, t, pl.stageNamed(of.Stage())))
	}
	if lacks(p.Placement) {
		say("", p.Placement)
	}
	for i := range p.Rules {
		if r := &p.Rules[i]; lacks(r.Placement) {
			say(fmt.Sprintf("%srule %q: ", p.Place(r.Line, r.Col), r.Name), r.Placement)
		}
	}
	return notes
}
