// SPDX-License-Identifier: Apache-2.0

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

// Unload removes everything: the rulesets of all generations in netfilter, the programs on devices, the table that applies the fail-safe to late
// devices, and the state. If a ruleset cannot be removed, programs and state stay, so that later commands still know which policy decides. Open
// connections of SYNPROXY continue. While there are any, a table that decides nothing is kept (Retained). Unload returns datapath.ErrNotLoaded if
// there was nothing to remove.
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
		removed, failed := in.removeHeld(ctx)  // rulesets without a state
		released, left := in.releaseProxy(ctx) // the table that an earlier unload has kept
		opened, late := in.OpenLate(ctx)
		if (released || opened || removed != nil) && errors.Join(failed, left, late) == nil {
			return nil
		}
		if failed != nil {
			err = nil // rulesets are still loaded, so ErrNotLoaded would be wrong
		}
		return errors.Join(err, failed, left, late)
	}
	_, late := in.OpenLate(ctx)
	return errors.Join(err, late, in.forgetEnded())
}

// endings winds down the generations that run.
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

// clean removes all rulesets of a kind that the instance has, except those in keep. If the kernel has no such ruleset, clean executes no tool.
func (in Instance) clean(ctx context.Context, k netfilter.Kind, keep ...string) error {
	return cleanOf(ctx, k, in.namePrefix(), in.prefixOf(k), keep)
}

// cleanOf is clean for the rulesets whose names start with a prefix. prefix is the prefix in the form of nftables, ofKind in the form of the kind k.
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
