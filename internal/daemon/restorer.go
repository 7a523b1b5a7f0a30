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

// How often the daemon looks for bans that sets have lost. A look reads all bans, so it takes no more than 1/lostShare of the time. On a
// busy machine it takes long because it waits: it comes every lostMost at least.
const (
	lostLook  = 5 * time.Second
	lostMost  = time.Minute
	lostShare = 50
)

// restoreBans enters bans again that sets have lost, until ctx ends.
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
			err = nil // a command changes what runs: the next look comes soon
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
		if never == nil { // most looks find no loss
			never = allowlist.Now(running.Allowlist)
		}
		return never.Why(p) != ""
	})
}
