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

// Feeds is how the sets stand whose content is a list that is fetched, or is read from a database.
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

// loadedLive is Live, and datapath.ErrNotLoaded when no policy runs.
func (h Host) loadedLive(ctx context.Context) ([]manifest.Live, error) {
	if _, err := h.RunningPolicy(ctx); err != nil {
		return nil, err
	}
	return h.Live(ctx)
}

// Refreshed is what became of the lists of sets.
type Refreshed struct {
	Outcomes  map[string]feed.Outcome `json:"outcomes"`            // by the set; those that could not be fetched are not there
	Exchanged []lists.Exchanged       `json:"exchanged,omitempty"` // what the kernel holds since
	Later     bool                    `json:"later,omitempty"`     // a policy is on trial: sets are exchanged when that has ended
}

// RefreshFeeds fetches the lists of these sets, of all without a name, and exchanges the sets in the policy that runs. What cannot be
// fetched is in the error, and keeps nothing else from it.
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

// ErrNoneHeld says that there is nothing for AcceptFeed to take.
var ErrNoneHeld = errors.New("no list is held")

// AcceptFeed takes the list of a set that is held, and exchanges the set. It is an error when none is held.
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

// exchange brings the kernel to what was fetched.
func (h Host) exchange(ctx context.Context, out *Refreshed) (err error) {
	out.Exchanged, err = h.SyncLists(ctx, true)
	if errors.Is(err, control.ErrChanged) {
		out.Later, err = true, nil
	}
	return err
}
