package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/ir"
)

// leastPackets is how many packets an apply must know of to place rules by them.
const leastPackets = 1000

// place finds the stage of each rule, by what was counted since the last apply if that is enough to tell.
func (a *apply) place(ctx context.Context) (err error) {
	if a.live != nil {
		if a.was, err = a.live.tallies(ctx, a.before); err != nil {
			return err
		}
	}
	if a.move != nil { // to where is known
		return nil
	}
	mix, err := a.mixSoFar(ctx)
	if err != nil {
		a.notes = append(a.notes, fmt.Sprintf("rules are placed without what was counted so far: %v", err))
	}
	if mix == nil {
		a.stages, err = a.compiled.Plan(a.target)
		return err
	}
	a.stages, err = a.compiled.Placed(a.target, a.options.Costs, *mix)
	return err
}

// mixSoFar is the packets since the last apply, nil when they are too few, or of no use without costs.
func (a *apply) mixSoFar(ctx context.Context) (*cost.Mix, error) {
	if a.options.Costs == nil || a.was == nil || a.before.manifest.Since == nil {
		return nil, nil
	}
	now, err := observe(a.before.manifest.Devices, a.was)
	if err != nil {
		return nil, err
	}
	return surveyed(ctx, now.since(a.before.manifest.Since), a.devices(), leastPackets)
}

// surveyed is a mix of packets with how they get about on these devices now; nil when fewer than least have arrived, for whom
// nothing is surveyed.
func surveyed(ctx context.Context, mix cost.Mix, devices []string, least uint64) (*cost.Mix, error) {
	if mix.Arrived < least {
		return nil, nil
	}
	around, err := hostfacts.Survey(ctx, devices)
	if err != nil {
		return nil, err
	}
	around.Fill(&mix)
	return &mix, nil
}

// remember notes in the manifest what placing the rules anew will take.
func (a *apply) remember() (err error) {
	m := a.manifest
	m.Placement = string(a.compiled.Program.Placement)
	if a.devicesExist() == nil { // else nothing has come in, or the apply is about to fail
		if m.Since, err = observe(a.devices(), a.was); err != nil {
			return err
		}
	}
	if a.move != nil {
		m.again(a.before.manifest, a.move)
		a.source, err = a.state.Note(a.before.number, datapath.NoteSource)
		return err
	}
	m.Fixed = a.fixed()
	if a.options.Costs != nil {
		m.Source, a.source, err = sourceOf(a.compiled)
	}
	return err
}

// fixed says why rules of the policy stay where they are while it runs, "" when they may move.
func (a *apply) fixed() string {
	p := a.compiled.Program
	free := func(r ir.Rule) bool {
		wish, _ := p.PlacementOf(&r)
		return wish == ir.PlaceAuto
	}
	switch {
	case !slices.ContainsFunc(p.Rules, free):
		return "the policy says where they run"
	case a.options.Costs == nil:
		return "it was applied without a cost model; `floodwall bench --calibrate` makes one, and then apply again"
	case len(p.Limits) > 0:
		return "limits would begin anew"
	}
	return ""
}

// Placed is Plan for a host with these costs and this mix of packets.
func (c *Compiled) Placed(t compile.Target, costs *cost.Model, mix cost.Mix) (*compile.Plan, error) {
	program, _ := compile.For(c.Program, t)
	pl, err := compile.Place(program, t, costs, mix)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Policy.File, err)
	}
	return pl, nil
}
