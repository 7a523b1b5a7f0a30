package plan

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// begin is the earliest stage that can serve rule i, whatever the other rules are, from the stage on that its placement or pl.From names.
func (pl *Plan) begin(i int) (Assignment, *StageError) {
	r := &pl.Program.Rules[i]
	place, err := pl.earliest(r)
	if err != nil || r.Protect > 0 { // a protection has a place of its own
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

// later is the place of a rule if it must not run before a stage: place itself if that is behind the stage, or if no later stage can serve
// the rule.
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

// stageNamed returns a stage by its name, or the next stage that the target has. "" returns "".
func (pl *Plan) stageNamed(name string) Stage {
	if name == "" {
		return ""
	}
	return pl.Target.stages()[slices.IndexFunc(pl.Target.stages(), func(s Stage) bool { return !pl.after(Stage(name), s) })]
}

// misplaced is the error of a rule whose placement names a stage that cannot serve it.
func (pl *Plan) misplaced(r *ir.Rule, placement, key, reason string) *StageError {
	remedy := "leave placement out"
	if i := slices.IndexFunc(pl.Target.stages(), func(s Stage) bool { k, _ := pl.Unfit(r, s); return k == "" }); i >= 0 {
		remedy = fmt.Sprintf("write placement: %s, or %s", pl.Target.stages()[i], remedy)
	}
	return pl.refuse(r, placement, fmt.Sprintf("that stage cannot serve %s: %s", key, reason), remedy)
}

// PlacementNotes say which placements name a stage that a target lacks.
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
