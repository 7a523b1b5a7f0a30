// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/host/allowlist"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// How often the daemon checks whether sets have lost bans. A check reads all bans, so checks take at most 1/lostShare of the time. On a busy machine
// a check takes long only because it waits. So there is a check at least every lostMost.
const (
	lostLook  = 5 * time.Second
	lostMost  = time.Minute
	lostShare = 50
)

// restoreBans enters lost bans again, until ctx ends. A ban is lost when it disappears from its set before the ban's end.
func (w *watcher) restoreBans(ctx context.Context) {
	if w.in.Bans == nil {
		return
	}
	failed := ""
	periodic.RunPaced(ctx, func() time.Duration {
		began := time.Now()
		n, err := w.restoreOnce(ctx)
		switch {
		case errors.Is(err, datapath.ErrNotLoaded), errors.Is(err, datapath.ErrLocked):
			err = nil // a command is changing the running policy: the next check comes soon
		case err != nil && err.Error() != failed:
			w.report(Event{Err: fmt.Errorf("bans that sets have lost: %w", err)})
		case n > 0:
			w.report(Event{Text: fmt.Sprintf("%d bans are entered again that sets had lost before their end", n)})
		}
		if failed = ""; err != nil {
			failed = err.Error()
		}
		return min(max(lostLook, lostShare*time.Since(began)), lostMost)
	})
}

func (w *watcher) restoreOnce(ctx context.Context) (int, error) {
	running, err := w.in.RunningPolicy(ctx)
	if err != nil {
		return 0, err
	}
	var never *allowlist.List
	return ban.Restore(ctx, w.in, w.in.Bans, func(p netip.Prefix) bool {
		if never == nil { // most checks find no lost ban
			never = allowlist.Now(running.Allowlist)
		}
		return never.Why(p) != ""
	})
}
