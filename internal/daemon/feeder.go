// SPDX-License-Identifier: Apache-2.0

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

// feedLook is how often the daemon checks which lists are due, and which copies and databases have changed. feedAll is how often it checks the
// content of all sets: lists must not contain this host's addresses, and these addresses may have changed.
const (
	feedLook = 2 * time.Second
	feedAll  = 5 * time.Minute
)

// feeder keeps lists and databases up to date.
type feeder struct {
	*watcher
	fetcher *feed.Fetcher
	sync    func(ctx context.Context, all bool) ([]lists.Exchanged, error)
	said    map[string]bool // alerts that were reported and still hold
	failed  string          // the error of the last exchange
}

// feeds runs until ctx ends. It fetches lists when they are due, and exchanges a set when the copy or the database of the set has changed. A slow
// server does not delay the exchange of other sets.
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

// exchanges exchanges sets until ctx ends. Each consecutive failure doubles the wait, up to feedAll. The reason is that an exchange reads lists and
// loads programs, and after several failures the next one will probably fail again.
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

// none reports whether the running policy has no list and no database, so that no set is ever exchanged.
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
		return // other tasks report this error
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

// exchange exchanges the sets that have changed, or all sets if `all` is true. It reports whether it succeeded.
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
	if f.failed != err.Error() { // report an error once, until it has disappeared
		f.failed = err.Error()
		f.report(Event{Err: err})
	}
	return false
}
