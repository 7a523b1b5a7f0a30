// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// Feeds is the status of the sets whose content is a fetched list, or is read from a database.
func (h Host) Feeds(ctx context.Context) ([]lists.Status, error) {
	live, err := h.Live(ctx)
	if err != nil {
		return nil, err
	}
	all := []lists.Status{}
	for i := range live {
		all = append(all, lists.StatusOf(h.Instance.Feeds, &live[i]))
	}
	return all, nil
}

// loadedLive returns the result of Live, or datapath.ErrNotLoaded when no policy runs.
func (h Host) loadedLive(ctx context.Context) ([]manifest.Live, error) {
	if _, err := h.RunningPolicy(ctx); err != nil {
		return nil, err
	}
	return h.Live(ctx)
}

// Refreshed is the result of fetching the lists of sets.
type Refreshed struct {
	Outcomes  map[string]feed.Outcome `json:"outcomes"`            // by set; lists that could not be fetched are missing
	Exchanged []lists.Exchanged       `json:"exchanged,omitempty"` // sets whose content in the kernel was replaced
	Later     bool                    `json:"later,omitempty"`     // a policy is on trial: sets are exchanged after the trial
}

// RefreshFeeds fetches the lists of the named sets, or of all sets if none is named. It then exchanges the sets of the running policy. The error
// names the lists that could not be fetched. The other lists are exchanged even if there is an error.
func (h Host) RefreshFeeds(ctx context.Context, sets ...string) (*Refreshed, error) {
	live, err := h.loadedLive(ctx)
	if err != nil {
		return nil, err
	}
	sources, err := lists.Feeds(live, sets...)
	if err != nil {
		return nil, err
	}
	out := &Refreshed{Outcomes: map[string]feed.Outcome{}}
	var one sync.Mutex
	var all sync.WaitGroup
	var errs []error
	for _, s := range sources {
		all.Go(func() {
			outcome, err := h.Instance.Feeds.Refresh(ctx, h.Instance.Fetcher(), s, true)
			one.Lock()
			defer one.Unlock()
			if errs = append(errs, err); err == nil {
				out.Outcomes[s.Set] = outcome
			}
		})
	}
	all.Wait()
	errs = append(errs, h.exchange(ctx, out))
	return out, errors.Join(errs...)
}

// ErrNoneHeld is the error when AcceptFeed found no held list.
var ErrNoneHeld = errors.New("no list is held")

// AcceptFeed accepts the held list of a set, and exchanges the set. If no list is held, it returns ErrNoneHeld.
func (h Host) AcceptFeed(ctx context.Context, set string) (*Refreshed, error) {
	live, err := h.loadedLive(ctx)
	if err != nil {
		return nil, err
	}
	sources, err := lists.Feeds(live, set)
	if err != nil {
		return nil, err
	}
	accepted, err := h.Instance.Feeds.Accept(ctx, sources[0])
	if err == nil && !accepted {
		err = fmt.Errorf("set %q: %w", set, ErrNoneHeld)
	}
	if err != nil {
		return nil, err
	}
	out := &Refreshed{Outcomes: map[string]feed.Outcome{set: feed.Changed}}
	return out, h.exchange(ctx, out)
}

// exchange replaces the content of sets in the kernel by the fetched lists.
func (h Host) exchange(ctx context.Context, out *Refreshed) (err error) {
	out.Exchanged, err = h.SyncLists(ctx, true)
	if errors.Is(err, control.ErrChanged) {
		out.Later, err = true, nil
	}
	return err
}
