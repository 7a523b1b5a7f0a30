// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// A command that changes a dynamic set also records the change in the file of bans, for the next boot. It does so under the lock of the state. An
// apply restores the recorded entries of sets that the previous policy lacked. After a boot there is no previous policy, so it restores all sets.

// keepChange records a change of a set. The change is already in force, so the caller reports an error of keepChange only as a note.
func (in Instance) keepChange(ctx context.Context, l *generation.Live, set string, c setChange, o ban.Outcome) error {
	if in.Bans == nil {
		return nil
	}
	ban.Count(in.Bans, o.New)
	e, err := ban.Named(l.Generations[0].Manifest, set)
	if err != nil {
		return nil
	}
	records := c.records(e, o)
	if len(records) == 0 {
		return nil
	}
	if err := in.Bans.Append(records); err != nil {
		return err
	}
	if in.Bans.Due() {
		return in.rewriteBans(ctx, l)
	}
	return nil
}

// rewriteBans rewrites the file of bans from the entries in the kernel and the entries that the kernel has lost.
func (in Instance) rewriteBans(ctx context.Context, l *generation.Live) error {
	m := l.Generations[0].Manifest
	bans, err := l.BansFor(ctx, l.Generations[0], l.Generations[0])
	if err != nil {
		return err
	}
	var saved []ban.Record
	if !in.Bans.ClockMoved() { // otherwise the ends in the file are wrong
		saved, _ = in.Bans.Load(ban.IsIn(m)) // Load moves a damaged file away
	}
	return in.Bans.Rewrite(ban.IsIn(m), ban.RecordsOf(ban.WithLost(m, bans, saved)))
}

// EachSet calls fn for each dynamic set of the running policy, once for each place in the kernel that has the set.
func (in Instance) EachSet(ctx context.Context, fn func(manifest.Set, ban.Set) error) error {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return err
	}
	defer l.Close()
	return eachSet(ctx, l, fn)
}

// EachSetLocked is EachSet under the lock. Meanwhile no other command changes a set or the file of bans.
func (in Instance) EachSetLocked(ctx context.Context, fn func(manifest.Set, ban.Set) error) error {
	return in.change(ctx, func(t *transaction) error { return eachSet(ctx, t.live, fn) })
}

func eachSet(ctx context.Context, l *generation.Live, fn func(manifest.Set, ban.Set) error) error {
	for _, e := range l.Generations[0].Manifest.Sets {
		if e.Dynamic < 0 || e.Local {
			continue
		}
		sets, err := l.DynamicSets(ctx, l.Generations[0], e)
		if err != nil {
			return err
		}
		for _, s := range sets {
			if err := fn(e, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// KeepBans rewrites the file of bans when the clock was set, when a change could not be recorded, or when most of the file is obsolete. All changes
// are on the disk when KeepBans returns.
func (in Instance) KeepBans(ctx context.Context) error {
	if in.Bans == nil {
		return nil
	}
	if !in.Bans.Due() && !in.Bans.Behind() {
		return in.Bans.Sync()
	}
	err := in.change(ctx, func(t *transaction) error { return in.rewriteBans(ctx, t.live) })
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil
	}
	return err
}

// bansKept rewrites the file of bans after an apply, if a rewrite is due, such as at the first apply after a boot. It returns notes for the operator.
func (in Instance) bansKept(ctx context.Context, state *datapath.State) (notes []string) {
	if in.Bans == nil || !in.Bans.Due() {
		return nil
	}
	l, err := generation.Open(ctx, state)
	if err == nil {
		defer l.Close()
		err = in.rewriteBans(ctx, l)
	}
	if err != nil {
		return []string{fmt.Sprintf("bans are not kept over a reboot: %v", err)}
	}
	return nil
}

// loadBans reads the recorded entries of dynamic sets that the previous policy lacked. An entry that cannot be read or restored becomes a note; it
// does not stop an apply.
func (t *transaction) loadBans() {
	limits := map[string]int{}
	for _, s := range t.compiled.Program.Sets {
		if !netfilter.DynamicByName(&s) {
			continue
		}
		if t.now != nil && t.foreign == nil {
			if was, ok := t.now.Manifest.Set(s.Name); ok && was.Dynamic >= 0 {
				continue
			}
		}
		limits[s.Name] = s.Max
	}
	if t.in.Bans == nil || len(limits) == 0 {
		return
	}
	records, err := t.in.Bans.Load(func(set string) bool { _, ok := limits[set]; return ok })
	if err != nil {
		t.note(fmt.Sprintf("no bans are restored: %v", err))
		return
	}
	t.saved = map[string]bool{}
	for _, r := range records {
		t.saved[r.Set] = true
	}
	for set := range t.saved {
		t.restoreSet(set, limits[set], records)
	}
}

// restoreSet selects the recorded entries that fit into a set of at most `most` entries.
func (t *transaction) restoreSet(set string, most int, records []ban.Record) {
	list, left := ban.Lost(manifest.Set{Name: set, Max: most}, nil, records)
	if t.target == plan.TargetNftables || t.stages.Later() { // sets of prefixes in nftables cannot have overlapping entries
		all := len(list)
		list = ban.Disjoint(list)
		left += all - len(list)
	}
	if left > 0 {
		t.notRestored(set, left)
	}
	t.kept[set] = list
	if t.target != plan.TargetXDP {
		t.bans += len(list)
	}
}

func (t *transaction) notRestored(set string, n int) {
	t.note(fmt.Sprintf("set %q cannot hold %d of the entries that were kept: it was full, its max is smaller than it was, or another prefix is around them", set, n))
}
