// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Fill says how full a set is after a change.
type Fill struct {
	Set      string
	Changed  []int // indices of the entries that were added, changed or removed
	Entries  int
	Capacity int
	Unsaved  error // why the change does not survive a reboot, nil if it does
}

// Warning returns a warning if the set is nearly full, else "". It returns "" for a zero Fill, which accompanies an error.
func (f Fill) Warning() string {
	if f.Capacity == 0 || f.Entries*10 < f.Capacity*9 {
		return ""
	}
	return fmt.Sprintf("set %q is %d%% full: %d of %d entries; raise its max in the policy and apply",
		f.Set, f.Entries*100/f.Capacity, f.Entries, f.Capacity)
}

// Block adds bans to a dynamic set. The name "" stands for the only set, or for the set named bans. All added bans are in force when Block returns.
// The error Refusals lists the refused bans; for a refused range it lists only the first piece. Fill.Changed lists only bans that added or
// changed an entry.
func (in Instance) Block(ctx context.Context, set string, bans []ban.Ban) (Fill, error) {
	return in.changeSet(ctx, set, setChange{
		func(s ban.Set) (ban.Outcome, error) { return s.Block(ctx, bans) },
		func(e manifest.Set, o ban.Outcome) []ban.Record {
			return ban.BlockedRecords(e, bans, o)
		},
	})
}

// Unblock removes the entries whose prefix is equal to one of the given prefixes. The error Refusals lists the prefixes without an entry.
func (in Instance) Unblock(ctx context.Context, set string, prefixes []netip.Prefix) (Fill, error) {
	return in.UnblockOf(ctx, set, ban.Owner{}, prefixes)
}

// UnblockOf is Unblock for an owner. It refuses entries of other owners.
func (in Instance) UnblockOf(ctx context.Context, set string, of ban.Owner, prefixes []netip.Prefix) (Fill, error) {
	return in.changeSet(ctx, set, setChange{
		func(s ban.Set) (ban.Outcome, error) { return s.Unblock(ctx, prefixes, of) },
		func(e manifest.Set, o ban.Outcome) []ban.Record {
			return ban.UnblockedRecords(e, prefixes, o)
		},
	})
}

// setChange is a change of a set, and its record for the next boot.
type setChange struct {
	do      func(ban.Set) (ban.Outcome, error)
	records func(e manifest.Set, o ban.Outcome) []ban.Record
}

// changeSet changes a set of every generation that runs or may run again, under the lock.
func (in Instance) changeSet(ctx context.Context, name string, c setChange) (fill Fill, err error) {
	err = in.change(ctx, func(t *transaction) error {
		var o ban.Outcome
		// The generation in force comes last, and its result is returned. Other generations may lack the set or the entries.
		for _, g := range t.live.All() {
			if fill, o, err = changeIn(ctx, t.live, g, name, c.do); err != nil && g == t.now {
				return err
			}
		}
		fill.Unsaved = in.keepChange(ctx, t.live, fill.Set, c, o)
		if o.Refused != nil {
			return o.Refused
		}
		return nil
	})
	return fill, err
}

func changeIn(ctx context.Context, l *generation.Live, g *generation.Generation, name string, do func(ban.Set) (ban.Outcome, error)) (fill Fill, first ban.Outcome, err error) {
	e, err := ban.Named(g.Manifest, name)
	if err != nil {
		return fill, first, err
	}
	sets, err := l.DynamicSets(ctx, g, e)
	if err != nil {
		return fill, first, err
	}
	fill = Fill{Set: e.Name, Capacity: e.Max}
	for i, s := range sets {
		o, err := do(s)
		if i > 0 {
			err = netfilter.UnlessAbsent(err)
		}
		if err != nil {
			return fill, first, err
		}
		if i == 0 {
			fill.Changed, first = o.Changed, o
			if fill.Entries, err = s.Count(ctx); err != nil {
				return fill, first, err
			}
		}
	}
	return fill, first, nil
}

// Blocked lists the entries of a dynamic set, sorted by address. The name "" stands for all dynamic sets.
func (in Instance) Blocked(ctx context.Context, set string) ([]ban.Ban, error) {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return nil, in.notLoaded(ctx, err)
	}
	defer l.Close()
	g := l.Generations[0]
	if set != "" {
		if _, err := ban.Named(g.Manifest, set); err != nil {
			return nil, err
		}
	}
	var all []ban.Ban
	for _, e := range g.Manifest.Sets {
		if e.Dynamic < 0 || e.Local || set != "" && e.Name != set {
			continue
		}
		list, err := l.Entries(ctx, g, e)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b ban.Ban) int { return a.Prefix.Compare(b.Prefix) })
	return all, nil
}

// EachBlocked calls fn for each entry of a dynamic set, in any order.
func (in Instance) EachBlocked(ctx context.Context, set string, fn func(ban.Ban)) error {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return err
	}
	defer l.Close()
	e, err := ban.Named(l.Generations[0].Manifest, set)
	if err != nil {
		return err
	}
	sets, err := l.DynamicSets(ctx, l.Generations[0], e)
	if err != nil || len(sets) == 0 {
		return err
	}
	return sets[0].Each(ctx, fn)
}
