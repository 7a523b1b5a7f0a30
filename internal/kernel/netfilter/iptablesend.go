// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/os/periodic"
)

// Rollback ends a trial, or cleans up after a trial that has ended. The old generation decides again, and the new one is removed. old is "" for none.
// It is not an error if the new generation does not exist.
func (x *Iptables) Rollback(ctx context.Context, name, old string) error {
	if old != "" {
		_, state, err := x.Trial(ctx, old)
		if err == nil && state == Absent {
			err = &StateError{Name: old, State: state, Remedy: "nothing was changed"}
		}
		if err != nil {
			return fmt.Errorf("going back to %s: %w", old, err)
		}
	}
	if err := x.release(ctx, name, iptablesSuperseded, iptablesTrial); err != nil {
		return fmt.Errorf("going back from %s: %w", name, err)
	}
	if old != "" {
		if err := x.bare(ctx, old); err != nil {
			return fmt.Errorf("going back to %s: %w", old, err)
		}
	}
	return x.Remove(ctx, name)
}

// Release makes the old generation decide in addition to the one on trial. It is used when XDP, or another part of the kernel, must return before
// Rollback.
func (x *Iptables) Release(ctx context.Context, name, old string) error {
	err := x.release(ctx, name, iptablesSuperseded)
	if err == nil && old != "" {
		err = x.bare(ctx, old)
	}
	if err != nil {
		return fmt.Errorf("going back to %s: %w", old, err)
	}
	return nil
}

// release empties the sets of a generation's guards, in the given order.
func (x *Iptables) release(ctx context.Context, name string, guards ...string) error {
	sets, err := x.ownSets(ctx, name)
	if err != nil {
		return err
	}
	var lines []string
	for _, guard := range guards {
		for _, f := range x.families {
			if set := guardSet(name, guard, f); slices.Contains(sets, set) {
				lines = append(lines, "del "+set+" "+f.halves[0], "del "+set+" "+f.halves[1])
			}
		}
	}
	return x.restoreSets(ctx, lines...)
}

// Remove removes the hooks, chains and sets of a generation. It is not an error if there is no such generation.
func (x *Iptables) Remove(ctx context.Context, name string) error {
	for _, f := range x.families {
		if err := f.remove(ctx, name); err != nil {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	sets, err := x.ownSets(ctx, name)
	if err == nil {
		err = x.destroy(ctx, sets)
	}
	if err != nil {
		return fmt.Errorf("removing the sets of %s: %w", name, err)
	}
	return nil
}

// dropGuards removes the sets of a generation's guards. The guards must already be removed from the hooks.
func (x *Iptables) dropGuards(ctx context.Context, name string) error {
	return x.destroyOwn(ctx, name, func(set string) bool {
		return slices.ContainsFunc(x.families, func(f *family) bool {
			return slices.Contains([]string{guardSet(name, iptablesTrial, f), guardSet(name, iptablesSuperseded, f), guardSet(name, iptablesReturn, f)}, set)
		})
	})
}

// destroyOwn removes the sets of a generation that a function selects.
func (x *Iptables) destroyOwn(ctx context.Context, name string, selected func(set string) bool) error {
	sets, err := x.ownSets(ctx, name)
	if err != nil {
		return err
	}
	return x.destroy(ctx, slices.DeleteFunc(sets, func(set string) bool { return !selected(set) }))
}

// destroy removes sets. It retries while a set is in use, because the kernel releases rules some time after they are deleted
// (nf_tables_trans_destroy_work).
func (x *Iptables) destroy(ctx context.Context, sets []string) error {
	return patiently(ctx, "in use", func() error {
		if len(sets) == 0 {
			return nil
		}
		err := x.destroyOnce(ctx, sets)
		if err == nil {
			return nil
		}
		names, listErr := x.setNames(ctx)
		if listErr != nil {
			return listErr
		}
		sets = slices.DeleteFunc(sets, func(s string) bool { return !slices.Contains(names, s) })
		return err
	})
}

// swap exchanges two sets of one type in all rules. It retries, because the kernel refuses to swap a set while a process lists it (ip_set_swap in
// net/netfilter/ipset/ip_set_core.c).
func (x *Iptables) swap(ctx context.Context, a, b string) error {
	return patiently(ctx, "busy", func() error { return x.restoreSets(ctx, "swap "+a+" "+b) })
}

// patiently calls try until it returns no error that contains text, for at most five seconds.
func patiently(ctx context.Context, text string, try func() error) (err error) {
	const tries, pause = 100, 50 * time.Millisecond
	for range tries {
		if err = try(); err == nil || !strings.Contains(err.Error(), text) {
			return err
		}
		if !periodic.Sleep(ctx, pause) {
			return err
		}
	}
	return err
}

func (x *Iptables) destroyOnce(ctx context.Context, sets []string) error {
	var lines []string
	for _, set := range sets {
		lines = append(lines, "destroy "+set)
	}
	return x.restoreSets(ctx, lines...)
}

// Leftovers lists the generations whose names consist of prefix and a number, except those in keep. Processes that were killed have left them.
func (x *Iptables) Leftovers(ctx context.Context, prefix string, keep ...string) ([]string, error) {
	names, err := x.Generations(ctx, prefix)
	return numbered(names, prefix, keep), err
}

// Clean removes all leftovers, and returns their names. If a generation in keep was set aside for a leftover, it decides again. If a generation in
// keep was confirmed, Clean removes the remains of its guards.
func (x *Iptables) Clean(ctx context.Context, prefix string, keep ...string) ([]string, error) {
	found, err := x.Leftovers(ctx, prefix, keep...)
	if err != nil {
		return nil, err
	}
	if err := x.free(ctx, found, keep); err != nil {
		return nil, err
	}
	for _, name := range found {
		if err := x.Remove(ctx, name); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// free removes the guards of the generations in keep, and all hooks of the generations in found. If a generation in keep is on trial, free does
// nothing.
func (x *Iptables) free(ctx context.Context, found, keep []string) error {
	var settled []string
	for _, name := range keep {
		_, state, err := x.Trial(ctx, name)
		if err != nil || state == OnTrial {
			return err
		}
		if state.Decides() || state == Aside {
			settled = append(settled, name)
		}
	}
	for _, f := range x.families {
		if err := f.rehook(ctx, append(found, settled...), func(_ string, now []iptablesRule) (want []iptablesRule) {
			for _, r := range now {
				if slices.ContainsFunc(settled, func(name string) bool { return ownChain(name, r.target()) }) {
					want = append(want, plain(r))
				}
			}
			return want
		}); err != nil {
			return err
		}
	}
	for _, name := range settled {
		if err := x.dropGuards(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
