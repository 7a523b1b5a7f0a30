package netfilter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/os/periodic"
)

// Rollback ends a trial, or tidies up after one that has ended: the old generation, unless "", decides, and the other
// one is removed. It is no error when the other one is gone already.
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

// Release lets the old generation decide beside the one on trial: when another place in the kernel is to go back before
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

// release empties the sets of a generation's guards, in their order.
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

// Remove removes a generation: hooks, chains, sets. It is no error when there is none.
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

// dropGuards removes the guards' sets of a generation whose hooks have no guards.
func (x *Iptables) dropGuards(ctx context.Context, name string) error {
	sets, err := x.ownSets(ctx, name)
	if err != nil {
		return err
	}
	return x.destroy(ctx, slices.DeleteFunc(sets, func(set string) bool {
		return !slices.ContainsFunc(x.families, func(f *family) bool {
			return slices.Contains([]string{guardSet(name, iptablesTrial, f), guardSet(name, iptablesSuperseded, f), guardSet(name, iptablesReturn, f)}, set)
		})
	}))
}

// destroy removes sets. The kernel lets go of rules some time after they are gone (nf_tables_trans_destroy_work), so
// that a set can still be in use.
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

// swap has two sets of one type change places in all rules. The kernel refuses it while somebody lists one of them
// (ip_set_swap in net/netfilter/ipset/ip_set_core.c).
func (x *Iptables) swap(ctx context.Context, a, b string) error {
	return patiently(ctx, "busy", func() error { return x.restoreSets(ctx, "swap "+a+" "+b) })
}

// patiently tries something again while its error has this text, for five seconds.
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

// Leftovers lists the generations whose names are prefix and a number, except those to keep: what a process left that
// was killed.
func (x *Iptables) Leftovers(ctx context.Context, prefix string, keep ...string) ([]string, error) {
	names, err := x.Generations(ctx, prefix)
	return numbered(names, prefix, keep), err
}

// Clean removes all leftovers, and tells which. A generation to keep that was set aside for one of them decides again,
// and what is left of its own guards after it was confirmed is removed.
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

// free removes the guards of the generations to keep, unless one of them is on trial, and all hooks of the others.
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
