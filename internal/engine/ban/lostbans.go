// SPDX-License-Identifier: Apache-2.0

// This file restores bans that a dynamic set has lost before their end. The set was full and evicted them, another program removed them, or the set
// was emptied. The file of bans records every ban and every unblocking. From it the missing entries are added to the dynamic sets again. So a program
// that bans need not check that its bans are still in force.

package ban

import (
	"context"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// Sets gives access to the dynamic sets of the policy that runs. control.Instance implements it.
type Sets interface {
	EachSet(ctx context.Context, fn func(manifest.Set, Set) error) error
	EachSetLocked(ctx context.Context, fn func(manifest.Set, Set) error) error
}

// Restore adds the entries that are in the log and missing from the sets, as far as the sets have space. An unblocked entry stays unblocked. A ban by
// a program is not restored if spares returns true for its prefix. n is the number of restored entries. When no entry is missing, Restore takes no
// lock, however long the log is.
//
// Restore checks the sets twice: first without the lock, then with it. Other processes may change the sets in between, so only the entries that the
// second check finds missing are restored.
func Restore(ctx context.Context, in Sets, log *Log, spares func(netip.Prefix) bool) (n int, err error) {
	if log.ClockMoved() { // the ends in the log are wrong until it is rewritten
		return 0, nil
	}
	from := log.Follow()
	defer from.Close()
	saved, _, err := from.Next()
	if err != nil || len(saved) == 0 {
		return 0, err
	}
	found := 0
	err = in.EachSet(ctx, func(e manifest.Set, s Set) error {
		bans, err := lost(ctx, e, s, saved, spares)
		found += len(bans)
		return err
	})
	if err != nil || found == 0 {
		return 0, err
	}
	saved = nil
	err = in.EachSetLocked(ctx, func(e manifest.Set, s Set) error {
		if saved == nil {
			if saved, err = log.Load(func(string) bool { return true }); err != nil {
				return err
			}
		}
		bans, err := lost(ctx, e, s, saved, spares)
		if err != nil || len(bans) == 0 {
			return err
		}
		o, err := s.Block(ctx, bans)
		n += len(o.Changed)
		return err
	})
	return n, err
}

// lost returns the bans that a set has lost.
func lost(ctx context.Context, e manifest.Set, s Set, saved []Record, spares func(netip.Prefix) bool) ([]Ban, error) {
	held, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	list, _ := Lost(e, held, saved)
	return slices.DeleteFunc(list, func(b Ban) bool { return b.Origin != Manual && spares(b.Prefix) }), nil
}
