// SPDX-License-Identifier: Apache-2.0

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

// leastPackets is the minimum number of counted packets from which an apply places rules.
const leastPackets = 1000

// place chooses the stage of each rule. It uses the packets counted since the last apply, if there are enough of them.
func (t *transaction) place(ctx context.Context) (err error) {
	if t.move != nil { // the move has a plan already
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

// mixSoFar returns the mix of packets since the last apply; nil when there are too few, or when there is no cost model.
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

// surveyed adds the present paths of packets on the devices to a mix. It returns nil if fewer than least packets have arrived: these are not worth a
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

// remember records in the manifest the data that the next placement of the rules needs.
func (t *transaction) remember() (err error) {
	m := t.manifest
	m.Placement = string(t.compiled.Program.Placement)
	if t.devicesExist() == nil { // otherwise no packet has arrived, or the apply is about to fail
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

// mostKept is the number of list entries up to which the source of a policy is always stored, so that temporary rules can be added. Each entry takes
// about 20 bytes of kernel memory and a third of a microsecond.
const mostKept = 100_000

// listed returns the number of entries in the policy's lists.
func (t *transaction) listed() (n int) {
	for _, s := range t.compiled.Program.Sets {
		n += s.Entries
	}
	return n
}

// fixed returns the reason why rules of the policy may not move while it runs. It returns "" if they may move.
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

// Placed is Plan, but it uses the costs of a host and a mix of packets to choose the stages.
func (c *Compiled) Placed(t plan.Target, costs *cost.Model, mix cost.Mix) (*plan.Plan, error) {
	program, _ := plan.For(c.Program, t)
	pl, err := plan.Place(program, t, costs, mix)
	if err != nil {
		return nil, inFile(c.Policy.File, err)
	}
	return pl, nil
}
