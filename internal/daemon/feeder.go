package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/feed"
	"github.com/floodwall/floodwall/internal/lists"
)

// How often the daemon looks for lists that are due, and for copies and databases that have changed. Every feedAll it looks at the
// content of all, since addresses of this host may have changed that lists must not hold.
const (
	feedLook = 2 * time.Second
	feedAll  = 5 * time.Minute
)

// feeder keeps lists and databases up to date.
type feeder struct {
	*watcher
	fetcher feed.Fetcher
	said    map[string]bool // alerts that were reported and have not gone since
	failed  string          // the error of the last exchange
}

// feeds fetches lists when they are due, and exchanges sets of which the copy or the database has changed, until ctx ends. A
// server that is slow keeps no other set from being exchanged.
func (w *watcher) feeds(ctx context.Context) {
	f := &feeder{watcher: w, said: map[string]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		every(ctx, feedLook, f.fetch)
	}()
	var last time.Time
	every(ctx, feedLook, func(ctx context.Context) {
		all := time.Since(last) >= feedAll
		if all {
			last = time.Now()
		}
		f.exchange(ctx, all)
	})
	<-done
}

// every calls fn, again and again with a pause, until ctx ends.
func every(ctx context.Context, pause time.Duration, fn func(context.Context)) {
	for ctx.Err() == nil {
		fn(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// fetch fetches all lists that are due.
func (f *feeder) fetch(ctx context.Context) {
	live, err := f.in.Live(ctx)
	if err != nil {
		return // for others to say
	}
	var all sync.WaitGroup
	for i := range live {
		if s := live[i].Feed; s != nil {
			all.Go(func() {
				outcome, err := f.in.Feeds.Refresh(ctx, &f.fetcher, *s, false)
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
		if s.State != feed.StandsStale {
			continue
		}
		if now[s.Set] = true; !f.said[s.Set] {
			f.report(Event{Err: errors.New(s.Alert())})
		}
	}
	f.said = now
}

// exchange exchanges the sets that have changed.
func (f *feeder) exchange(ctx context.Context, all bool) {
	done, err := f.in.SyncLists(ctx, all)
	for _, x := range done {
		f.report(Event{Text: fmt.Sprintf("set %q is exchanged: %d entries, %d before", x.Set, x.Entries, x.Before)})
	}
	if err == nil || errors.Is(err, control.ErrChanged) || errors.Is(err, datapath.ErrLocked) || errors.Is(err, datapath.ErrNotLoaded) {
		f.failed = ""
		return
	}
	if f.failed != err.Error() { // once, until it has gone
		f.failed = err.Error()
		f.report(Event{Err: err})
	}
}
