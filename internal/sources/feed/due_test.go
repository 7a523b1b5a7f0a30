// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/sources/feed"
)

// TestDiesFetching kills a process while it fetches, perhaps because of the list. When it is started again, it must not fetch at once. With each
// further death, it must wait longer.
func TestDiesFetching(t *testing.T) {
	s := newScene(t)
	s.text(good)
	s.refresh(feed.Changed, "")
	for _, least := range []time.Duration{5 * time.Minute, 10 * time.Minute} {
		var next time.Time
		s.serve(func(w http.ResponseWriter, _ *http.Request) { // copies the state that the next process would find
			if at := s.store.Status(s.source).Next; at != nil {
				next = *at
			}
			copyDir(s, s.store.Dir, s.store.Dir+".died")
			w.WriteHeader(http.StatusInternalServerError)
		})
		s.refresh("", "500")
		if wait := time.Until(next); wait < least-10*time.Second || wait > least*11/10 {
			t.Errorf("it is fetched again in %v, not in %v and a tenth more at most", wait, least)
		}
		s.store.Dir += ".died"
	}
	ctx, cancel := context.WithCancel(t.Context())
	before := s.stands(feed.StateOK).Next
	s.serve(func(http.ResponseWriter, *http.Request) { cancel() })
	if _, err := s.store.Refresh(ctx, &s.fetcher, s.source, true); err == nil {
		t.Fatal("no error")
	}
	if after := s.stands(feed.StateOK).Next; !after.Equal(*before) {
		t.Errorf("a fetch that was called off moves the next from %v to %v", before, after)
	}
}

func copyDir(s *scene, from, to string) {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		s.Error(err)
	}
}

// TestWrongClock uses a state that was written while the clock was wrong. The list must still be fetched. Until then, the copy is stale.
func TestWrongClock(t *testing.T) {
	const years = 20 * 365 * 24 * time.Hour
	for _, c := range []struct {
		name, state string
		ahead       time.Duration
		now         bool
		stands      feed.State
		due         bool
	}{
		{"next in years", `{"next": %q}`, years, false, feed.StateOK, true},
		{"next after the period", `{"next": %q}`, 14 * time.Hour, false, feed.StateOK, true},
		{"next within the period", `{"next": %q}`, 13 * time.Hour, false, feed.StateOK, false},
		{"a wait of years", `{"wait": %q}`, years, true, feed.StateOK, true},
		{"a wait that servers can ask for", `{"next": %[1]q, "wait": %[1]q}`, 6 * 24 * time.Hour, false, feed.StateOK, false},
		{"checked in years", `{"checked": %[1]q, "next": %[1]q}`, years, false, feed.StateStale, true},
		{"checked in an hour", `{"checked": %q, "next": "NEXT"}`, time.Hour, false, feed.StateStale, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.text(good)
			s.refresh(feed.Changed, "")
			at := time.Now().Add(c.ahead).UTC().Format(time.RFC3339)
			text := strings.ReplaceAll(fmt.Sprintf(c.state, at), "NEXT", time.Now().Add(c.ahead+12*time.Hour).UTC().Format(time.RFC3339))
			s.rewrite("state", func(string) string { return text })
			if c.stands == feed.StateStale { // the copy was also written at that time
				s.rewrite("copy", func(was string) string {
					return regexp.MustCompile(`"fetched":"[^"]*"`).ReplaceAllString(was, `"fetched":"`+at+`"`)
				})
			}
			if got := s.stands(c.stands); got.Age < 0 || c.due && got.Next != nil || got.Checked != nil && time.Until(*got.Checked) > 0 {
				t.Errorf("%+v", got)
			}
			asked := s.asked.Load()
			_, err := s.store.Refresh(t.Context(), &s.fetcher, s.source, c.now)
			if got := s.asked.Load() > asked; got != c.due || c.due && err != nil {
				t.Errorf("it is fetched: %t, not %t (%v)", got, c.due, err)
			}
			if c.due {
				s.stands(feed.StateOK)
			}
		})
	}
}

// rewrite changes a file of the store.
func (s *scene) rewrite(name string, change func(string) string) {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.store.Dir, "*", name))
	if err != nil || len(files) != 1 {
		s.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err == nil {
		err = os.WriteFile(files[0], []byte(change(string(text))), 0o600)
	}
	if err != nil {
		s.Fatal(err)
	}
}
