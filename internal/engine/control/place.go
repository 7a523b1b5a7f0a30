package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// leastPackets is the number of packets from which on an apply places rules by them.
const leastPackets = 1000

// place finds the stage of each rule, by what was counted since the last apply if that is enough to tell.
func (t *transaction) place(ctx context.Context) (err error) {
	if t.move != nil { // to where is known
		return nil
	}
	mix, err := t.mixSoFar(ctx)
	if err != nil {
		t.note(fmt.Sprintf("rules are placed without what was counted so far: %v", err))
	}
	if mix == nil {
		t.stages, err = t.compiled.Plan(t.target)
		return err
	}
	t.stages, err = t.compiled.Placed(t.target, t.options.Costs, *mix)
	return err
}

// mixSoFar is the packets since the last apply, nil when they are too few, or of no use without costs.
func (t *transaction) mixSoFar(ctx context.Context) (*cost.Mix, error) {
	if t.options.Costs == nil || t.counted == nil || t.now.Manifest.Since == nil {
		return nil, nil
	}
	now, err := manifest.Observe(t.now.Manifest.Devices, t.counted)
	if err != nil {
		return nil, err
	}
	return surveyed(ctx, now.Since(t.now.Manifest.Since), t.devices(), leastPackets)
}

// surveyed adds the paths of packets on these devices now to a mix; nil if fewer packets than least have arrived, which are not worth a
// survey.
func surveyed(ctx context.Context, mix cost.Mix, devices []string, least uint64) (*cost.Mix, error) {
	if mix.Arrived < least {
		return nil, nil
	}
	around, err := facts.Survey(ctx, devices)
	if err != nil {
		return nil, err
	}
	around.Fill(&mix)
	return &mix, nil
}

// remember records in the manifest what a new placement of the rules needs.
func (t *transaction) remember() (err error) {
	m := t.manifest
	m.Placement = string(t.compiled.Program.Placement)
	if t.devicesExist() == nil { // else nothing has come in, or the apply is about to fail
		if m.Since, err = manifest.Observe(t.devices(), t.counted); err != nil {
			return err
		}
	}
	if t.move != nil {
		m.Again(t.now.Manifest, t.move)
		t.source, err = t.state.Note(t.now.Number, datapath.NoteSource)
		return err
	}
	m.Fixed = t.fixed()
	if t.listed() <= mostKept || t.options.Costs != nil || len(m.Live) > 0 || m.Daemon.AddsRules() || len(m.Temporary) > 0 {
		m.Source, t.source, err = sourceOf(t.compiled, t.found)
	}
	return err
}

// mostKept is the number of list entries up to which the source of a policy is kept in any case, so that temporary rules can be added. An
// entry takes about 20 bytes of kernel memory and a third of a microsecond.
const mostKept = 100_000

// listed is how many entries the policy's lists have.
func (t *transaction) listed() (n int) {
	for _, s := range t.compiled.Program.Sets {
		n += s.Entries
	}
	return n
}

// fixed is the reason for which rules of the policy do not move while it runs, "" if they may.
func (t *transaction) fixed() string {
	program := t.compiled.Program
	free := func(r ir.Rule) bool {
		wish, _ := program.PlacementOf(&r)
		return wish == ir.PlaceAuto
	}
	switch {
	case !slices.ContainsFunc(program.Rules, free):
		return "the policy says where they run"
	case t.options.Costs == nil:
		return "it was applied without a cost model; `floodwall-lab bench --calibrate` makes one, and then apply again"
	case len(program.Limits) > 0 || slices.ContainsFunc(program.Rules, func(r ir.Rule) bool { return r.Connections != nil }):
		return "limits would begin anew"
	}
	return ""
}

// Placed is Plan for a host with these costs and this mix of packets.
func (c *Compiled) Placed(t plan.Target, costs *cost.Model, mix cost.Mix) (*plan.Plan, error) {
	program, _ := plan.For(c.Program, t)
	pl, err := plan.Place(program, t, costs, mix)
	if err != nil {
		return nil, inFile(c.Policy.File, err)
	}
	return pl, nil
}
