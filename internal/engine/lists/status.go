// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// Status is the status of a live set.
type Status struct {
	Set     string         `json:"set"`
	From    string         `json:"from"`              // the address of the list, or the wanted data and its database
	Every   float64        `json:"every,omitempty"`   // seconds between fetches
	State   feed.State     `json:"state"`             // ok, failing, held, stale or none
	Why     string         `json:"why,omitempty"`     // why the state is not ok
	Entries int            `json:"entries"`           // number of entries in force
	Since   time.Time      `json:"since"`             // when these entries came into force
	Checked *time.Time     `json:"checked,omitempty"` // when the copy was last found to be the newest
	Age     float64        `json:"age,omitempty"`     // seconds since Checked
	Next    *time.Time     `json:"next,omitempty"`    // time of the next fetch
	Held    int            `json:"held_entries,omitempty"`
	Removed []feed.Removed `json:"removed,omitempty"` // entries that were removed from the list, with the reasons
	More    int            `json:"more_removed,omitempty"`
}

// StatusOf returns the status of a live set.
func StatusOf(store feed.Store, l *manifest.Live) Status {
	out := Status{Set: l.Set, State: feed.StateOK, Entries: l.Entries, Since: l.Since, Removed: l.Spared, More: l.More}
	if l.Feed == nil {
		out.From = database(l.Geo)
		if info, err := os.Stat(l.Geo.File); err != nil {
			out.State, out.Why = feed.StateFailing, err.Error()
		} else {
			at := info.ModTime().UTC()
			out.Checked, out.Age = &at, time.Since(at).Seconds()
		}
		return out
	}
	s := store.Status(*l.Feed)
	out.From, out.Every, out.State, out.Why = feed.Shown(l.Feed.URL), l.Feed.Every.Seconds(), s.State, s.Why
	out.Checked, out.Age, out.Next, out.Held = s.Checked, s.Age, s.Next, s.HeldSize
	out.Removed, out.More = slices.Concat(s.Removed, l.Spared), s.More+l.More
	return out
}

func database(d *manifest.Database) string {
	what := slices.Clone(d.Countries)
	for _, number := range d.ASNs {
		what = append(what, fmt.Sprintf("AS%d", number))
	}
	return strings.Join(what, " ") + " of " + d.File
}

// Reasons returns a text on the removed entries and the reasons. It returns "" when no entry was removed.
func (s *Status) Reasons() string {
	return (&feed.Screened{Removed: s.Removed, More: s.More}).Reasons()
}

// Alert returns a text on a problem that needs an operator. It returns "" when there is none.
func (s *Status) Alert() string {
	switch s.State {
	case feed.StateStale:
		text := fmt.Sprintf("set %q was not brought up to date for %s", s.Set, (time.Duration(s.Age) * time.Second).Round(time.Minute))
		if s.Checked == nil {
			text = fmt.Sprintf("set %q: the clock was wrong when it was last brought up to date", s.Set)
		}
		if s.Why != "" {
			text += ": " + s.Why
		}
		return text
	case feed.StateHeld:
		return fmt.Sprintf("set %q: a new list is held: %s", s.Set, s.Why)
	}
	return ""
}

// ErrNoFeed says that the running policy has no fetched set with a given name.
var ErrNoFeed = errors.New("the policy that runs has no such set with url")

// Feeds returns the sources of the named fetched sets. Without names it returns the sources of all fetched sets.
func Feeds(live []manifest.Live, names ...string) (sources []feed.Source, err error) {
	for i := range live {
		if f := live[i].Feed; f != nil && (len(names) == 0 || slices.Contains(names, live[i].Set)) {
			sources = append(sources, *f)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(sources, func(s feed.Source) bool { return s.Set == name }) {
			return nil, fmt.Errorf("set %q: %w", name, ErrNoFeed)
		}
	}
	return sources, nil
}
