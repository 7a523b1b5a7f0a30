package control

import (
	"context"
	"errors"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Unload removes everything: rulesets in netfilter, of whatever generation, programs on devices, the table that keeps late devices closed, and
// the state. When a ruleset cannot be removed, programs and state stay, so that no command forgets what still decides.
// Connections that SYNPROXY began go on: while there are any, a table is left that decides nothing (Retained). It returns
// datapath.ErrNotLoaded if there was nothing.
func (in Instance) Unload(ctx context.Context) error {
	err := in.locked(ctx, func(state *datapath.State) error {
		if err := in.endings(ctx, state); err != nil {
			return err
		}
		_, err := in.releaseProxy(ctx)
		_, failed := in.removeHeld(ctx)
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		return errors.Join(strictFor(state), state.Unload())
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		removed, failed := in.removeHeld(ctx)  // that nothing knows of
		released, left := in.releaseProxy(ctx) // of an unload before
		opened, late := in.OpenLate(ctx)
		if (released || opened || removed != nil) && errors.Join(failed, left, late) == nil {
			return nil
		}
		if failed != nil {
			err = nil // something is loaded
		}
		return errors.Join(err, failed, left, late)
	}
	_, late := in.OpenLate(ctx)
	return errors.Join(err, late, in.forgetEnded())
}

// endings winds down what runs.
func (in Instance) endings(ctx context.Context, state *datapath.State) error {
	l, err := generation.Open(ctx, state)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	if err := statedir.Check(in.Dir, in.State); err != nil {
		return err
	}
	for _, g := range l.Generations {
		err = errors.Join(err, windDown(ctx, g, nil))
	}
	return errors.Join(err, in.retainProxy(ctx, l.Manifests(), nil))
}

// clean removes all rulesets of a kind that the instance has, but for those to keep. Where the kernel holds none, no program is asked.
func (in Instance) clean(ctx context.Context, k netfilter.Kind, keep ...string) error {
	return cleanOf(ctx, k, in.namePrefix(), in.prefixOf(k), keep)
}

// cleanOf is clean for the rulesets whose names begin with a prefix, as it is in nftables, and in the kind.
func cleanOf(ctx context.Context, k netfilter.Kind, prefix, ofKind string, keep []string) error {
	list, err := netfilter.ListHeld(prefix)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(h netfilter.Held) bool { return h.Kind == k }) {
		return nil
	}
	t, err := netfilter.FindTool(ctx, k)
	if err != nil && k == netfilter.KindNft {
		t, err = netfilter.NftWithout(err), nil
	}
	if err != nil {
		return err
	}
	_, err = t.Clean(ctx, ofKind, keep...)
	return err
}
