// This file enters bans again that a dynamic set has lost before their end: it was full and they gave way, another program
// removed them, or a set was emptied. In: the file of bans, which has what was banned and lifted, whoever asked. Out: entries of the
// dynamic sets. So no program that bans has to look whether its bans are still there.

package ban

import (
	"context"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// Sets are the dynamic sets of what runs. control.Instance has them.
type Sets interface {
	EachSet(ctx context.Context, fn func(manifest.Set, Set) error) error
	EachSetLocked(ctx context.Context, fn func(manifest.Set, Set) error) error
}

// Restore enters again what sets have lost of what the log says they have, where they have space for it. What somebody has unblocked
// stays so, and no ban by a program is entered that spares names. It returns how many entries it has made. Without a loss it takes no
// lock, however long the log is.
//
// The sets are open to others between the look without the lock and the one with it: only what the second one finds is entered.
func Restore(ctx context.Context, in Sets, log *Log, spares func(netip.Prefix) bool) (n int, err error) {
	if log.ClockMoved() { // its ends are wrong until it is written anew
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
		n += o.Changed
		return err
	})
	return n, err
}

// lost are the bans that a set has lost.
func lost(ctx context.Context, e manifest.Set, s Set, saved []Record, spares func(netip.Prefix) bool) ([]Ban, error) {
	held, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	list, _ := Lost(e, held, saved)
	list = slices.DeleteFunc(list, func(b Blocked) bool {
		return b.Origin != Manual && spares(b.Prefix)
	})
	return AsBans(list), nil
}
