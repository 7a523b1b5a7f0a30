package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// Intervals at which the daemon looks for lists that are due, and for copies and databases that have changed. Every feedAll it checks the
// content of all, because addresses of this host, which lists must not hold, may have changed.
const (
	feedLook = 2 * time.Second
	feedAll  = 5 * time.Minute
)

// feeder keeps lists and databases up to date.
type feeder struct {
	*watcher
	fetcher *feed.Fetcher
	sync    func(ctx context.Context, all bool) ([]lists.Exchanged, error)
	said    map[string]bool // alerts that were reported and have not gone since
	failed  string          // the error of the last exchange
}

// feeds fetches lists when they are due, and exchanges sets of which the copy or the database has changed, until ctx ends. A
// server that is slow keeps no other set from being exchanged.
func (w *watcher) feeds(ctx context.Context) {
	f := &feeder{watcher: w, fetcher: w.in.Fetcher(), sync: w.in.SyncLists, said: map[string]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		periodic.RunPaced(ctx, func() time.Duration {
			f.fetch(ctx)
			return feedLook
		})
	}()
	f.exchanges(ctx)
	<-done
}

// exchanges exchanges sets until ctx ends. After each failure in a row it waits twice as long, up to feedAll: an exchange reads lists and
// loads programs, and one that has failed often will fail again.
func (f *feeder) exchanges(ctx context.Context) {
	var last time.Time
	pause := feedLook
	periodic.RunPaced(ctx, func() time.Duration {
		all := time.Since(last) >= feedAll
		if all {
			last = time.Now()
		}
		if f.exchange(ctx, all) {
			pause = feedLook
			return feedLook
		}
		wait := pause
		pause = min(2*pause, feedAll)
		return wait
	})
}

// none reports whether the policy that runs has no sets whose content is exchanged.
func (f *feeder) none(ctx context.Context) bool {
	w, err := f.in.RunningPolicy(ctx)
	return err == nil && !w.Lists
}

// fetch fetches all lists that are due.
func (f *feeder) fetch(ctx context.Context) {
	if f.none(ctx) {
		return
	}
	live, err := f.in.Live(ctx)
	if err != nil {
		return // for others to say
	}
	var all sync.WaitGroup
	for i := range live {
		if s := live[i].Feed; s != nil {
			all.Go(func() {
				outcome, err := f.in.Feeds.Refresh(ctx, f.fetcher, *s, false)
				if err != nil && ctx.Err() == nil {
					f.report(Event{Err: fmt.Errorf("%w; the copy before stays", err)})
				}
				if outcome == feed.Held {
					f.report(Event{Err: fmt.Errorf("set %q: a new list is held, as it shrank or grew too much: `floodwall feeds accept %s` takes it", s.Set, s.Set)})
				}
			})
		}
	}
	all.Wait()
	now := map[string]bool{}
	for i := range live {
		s := lists.StatusOf(f.in.Feeds, &live[i])
		if s.State != feed.StateStale {
			continue
		}
		if now[s.Set] = true; !f.said[s.Set] {
			f.report(Event{Err: errors.New(s.Alert())})
		}
	}
	f.said = now
}

// exchange exchanges the sets that have changed, and reports whether nothing is left to be done.
func (f *feeder) exchange(ctx context.Context, all bool) bool {
	if !all && f.none(ctx) {
		f.failed = ""
		return true
	}
	done, err := f.sync(ctx, all)
	for _, x := range done {
		f.report(Event{Text: fmt.Sprintf("set %q is exchanged: %d entries, %d before", x.Set, x.Entries, x.Before)})
	}
	if err == nil || errors.Is(err, control.ErrChanged) || errors.Is(err, datapath.ErrLocked) || errors.Is(err, datapath.ErrNotLoaded) {
		f.failed = ""
		return true
	}
	if f.failed != err.Error() { // once, until it has gone
		f.failed = err.Error()
		f.report(Event{Err: err})
	}
	return false
}
