package control

import (
	"context"
	"errors"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Unload removes everything: programs on devices, rulesets in netfilter, the table that keeps late devices closed, and the state.
// Connections that SYNPROXY began go on: while there are any, a table is left that decides nothing (Retained). It returns
// datapath.ErrNotLoaded if there was nothing.
func (in Instance) Unload(ctx context.Context) error {
	err := in.locked(ctx, func(state *datapath.State) error {
		kinds, err := in.kinds(ctx, state)
		if err != nil {
			return err
		}
		if err := in.endings(ctx, state); err != nil {
			return err
		}
		_, err = in.releaseProxy(ctx)
		errs := []error{err}
		for _, k := range kinds {
			errs = append(errs, in.clean(ctx, k))
		}
		return errors.Join(append(errs, in.cleanTemporary(ctx), strictFor(state), state.Unload())...)
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		released, left := in.releaseProxy(ctx) // of an unload before
		opened, late := in.OpenLate(ctx)
		if (released || opened) && errors.Join(left, late) == nil {
			return nil
		}
		return errors.Join(err, left, late)
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

// kinds are the tools that may have rulesets of the instance: those that a manifest names, and those that are installed, because an apply
// that died may leave rulesets that no manifest names.
func (in Instance) kinds(ctx context.Context, state *datapath.State) ([]netfilter.Kind, error) {
	named := map[netfilter.Kind]bool{}
	l, err := generation.Open(ctx, state)
	switch {
	case err == nil:
		for _, g := range l.All() {
			for _, p := range l.Rulesets(g) {
				named[p.Kind] = true
			}
		}
		l.Close()
	case !errors.Is(err, datapath.ErrNotLoaded):
		return nil, err
	}
	var list []netfilter.Kind
	for _, k := range []netfilter.Kind{netfilter.KindNft, netfilter.KindIptables} {
		if _, err := netfilter.FindTool(ctx, k); err == nil || named[k] {
			list = append(list, k)
		}
	}
	return list, nil
}

// clean removes all rulesets of a kind that the instance has, but for those to keep.
func (in Instance) clean(ctx context.Context, k netfilter.Kind, keep ...string) error {
	t, err := netfilter.FindTool(ctx, k)
	if err != nil {
		return err
	}
	_, err = t.Clean(ctx, in.prefixOf(k), keep...)
	return err
}
