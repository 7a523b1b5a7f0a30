// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// look finds the policy that runs when an apply starts. If none runs, it finds the last policy, whose devices have gone.
func (t *transaction) look(ctx context.Context) error {
	l, err := generation.Open(ctx, t.state)
	switch {
	case err == nil:
		t.live, t.base = l, l.Base()
		err = t.readLive(ctx)
	case errors.Is(err, datapath.ErrNotLoaded):
		err = t.lookBack()
	}
	if err != nil {
		return err
	}
	if t.foreign = t.now.Foreign(); t.foreign == nil {
		if t.counters, err = t.state.Counters(); err != nil {
			return err
		}
	} else {
		t.note(t.foreign.Error() + ": counts begin anew")
	}
	t.inherits, err = t.state.Inherited()
	return err
}

// readLive reads the generations that run and their counts.
func (t *transaction) readLive(ctx context.Context) (err error) {
	t.now = t.live.Generations[0]
	if t.live.Trial != nil {
		t.ended, t.tried = t.now, t.now.Number
	}
	for _, g := range t.live.Generations {
		t.manifests = append(t.manifests, g.Manifest)
	}
	if t.live.Standby != nil { // the standby program may count again
		t.manifests = append(t.manifests, t.live.Standby.Manifest)
	}
	t.counted, err = t.live.Counts(ctx, t.now)
	return err
}

// lookBack finds the last policy if all its devices have gone.
func (t *transaction) lookBack() error {
	latest, err := t.state.Latest()
	if latest == nil || err != nil {
		return err
	}
	t.now, err = generation.OfProgram(latest)
	if err == nil {
		t.manifests = []*manifest.Manifest{t.now.Manifest}
	}
	return err
}

// checkDirectory returns an error if the instance uses another state directory.
func (t *transaction) checkDirectory(context.Context) error {
	return statedir.Check(t.in.Dir, t.in.State)
}

// keepDirectory records the path of the state directory in the instance's state.
func (t *transaction) keepDirectory(context.Context) error {
	if err := statedir.Keep(t.state, t.in.State); err != nil { // not an error of the apply: filtering matters more
		t.note(err.Error() + ": bans and lists are not kept over a reboot")
	}
	return nil
}

// follows returns ErrChanged if the change was made for a certain running policy, and another policy runs by now or one is on trial.
func (t *transaction) follows(context.Context) error {
	if t.of == nil {
		return nil
	}
	if t.live.Trial != nil || len(t.live.Generations) != 1 || t.now.Number != t.of.Number || t.now.Manifest.Source != t.of.Manifest.Source {
		return ErrChanged
	}
	return nil
}
