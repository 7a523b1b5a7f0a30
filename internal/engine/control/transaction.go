package control

import (
	"cmp"
	"context"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
)

// request is what is to be applied, and to which target.
type request struct {
	in       Instance
	compiled *Compiled
	options  ApplyOptions
	target   plan.Target
	choice   string // why it is this target, when it was to be chosen

	move   *manifest.Move         // of the rules of the policy that runs, when the request is no more than that; else nil
	of     *generation.Generation // whose rules move
	stages *plan.Plan             // to which they move
}

// transact is the transaction. Each step makes a value, which does not change any more, from those before: what runs, what is planned, what
// is loaded into the kernel, and what is installed. Nothing that decides changes before the last step. That step changes everything, or
// undoes what it did.
func (r request) transact(ctx context.Context, state *datapath.State) (*Applied, error) {
	if err := r.permitted(); err != nil {
		return nil, err
	}
	now, err := look(ctx, state)
	if err != nil {
		return nil, err
	}
	defer now.close()
	if err := cmp.Or(statedir.Check(r.in.Dir, r.in.State), r.follows(now)); err != nil {
		return nil, err
	}
	planned, err := r.plan(ctx, now)
	if err != nil {
		return nil, err
	}
	loaded, err := planned.load(ctx)
	if err != nil {
		return nil, err
	}
	defer loaded.close()
	if err := loaded.guard(ctx); err != nil {
		return nil, err
	}
	if r.options.DryRun {
		return loaded.report(), planned.devicesExist()
	}
	if err := statedir.Keep(state, r.in.State); err != nil { // the filter matters more
		loaded.note(err.Error() + ": bans and lists are not kept over a reboot")
	}
	installed, err := loaded.install(ctx)
	if err != nil {
		return nil, err
	}
	return installed.report(), nil
}

// permitted returns a *rights.Error when this process may not load what the target takes. Tools of netfilter check by themselves.
func (r request) permitted() error {
	if r.target != plan.TargetXDP {
		return nil
	}
	return features.CheckRights("loading the XDP program", features.BPF, features.NetAdmin, features.Perfmon)
}

// follows returns ErrChanged if the request is a move and another policy runs than the move was made for.
func (r request) follows(now *running) error {
	if r.move == nil {
		return nil
	}
	l := now.live
	if l == nil || l.Trial != nil || len(l.Generations) != 1 || now.generation.Number != r.of.Number || now.generation.Manifest.Source != r.of.Manifest.Source {
		return ErrChanged
	}
	return nil
}

// devices are the names of the devices to filter.
func (r request) devices() []string {
	if r.options.Devices != nil {
		return r.options.Devices
	}
	return r.compiled.Devices()
}

// attachments are the devices, each with the mode of XDP.
func (r request) attachments() (to []datapath.Attachment) {
	mode := r.options.Mode
	if mode == "" {
		mode = datapath.Auto
	}
	for _, d := range r.devices() {
		to = append(to, datapath.Attachment{Device: d, Mode: mode})
	}
	return to
}

// devicesExist is what a dry run can say about the devices.
func (r request) devicesExist() error {
	for _, d := range r.devices() {
		if err := datapath.DeviceExists(d); err != nil {
			return err
		}
	}
	return nil
}

// inTurn runs the steps in order, until ctx ends.
func inTurn(ctx context.Context, steps []func(context.Context) error) error {
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
