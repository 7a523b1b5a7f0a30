// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/sources/feed"
)

// TestTakenOver checks lists of a server that an attacker controlled for some time. The attacker must not be able to suppress later lists: neither by
// a tag that is too long for servers, nor by a modification time in the future. By the tag of the true list, he can suppress it for at most a week.
func TestTakenOver(t *testing.T) {
	const genuine = `"the true list"`
	for name, c := range map[string]struct {
		header, value string
		age           time.Duration // of the copy, at the time when the true server answers again
	}{
		"long":         {"ETag", `"` + strings.Repeat("x", 60_000) + `"`, 0},
		"to come":      {"Last-Modified", "Mon, 22 Nov 2106 10:00:00 GMT", 0},
		"the true tag": {"ETag", genuine, 8 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.serve(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(c.header, c.value)
				io.WriteString(w, "9.9.9.9\n")
			})
			s.refresh(feed.Changed, "")
			s.grow(c.age)
			s.serve(func(w http.ResponseWriter, r *http.Request) {
				switch since, err := http.ParseTime(r.Header.Get("If-Modified-Since")); {
				case len(r.Header.Get("If-None-Match")) > 8000:
					w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
				case r.Header.Get("If-None-Match") == genuine, err == nil && since.After(time.Now()):
					w.WriteHeader(http.StatusNotModified)
				default:
					w.Header().Set("ETag", genuine)
					io.WriteString(w, "9.9.9.8\n")
				}
			})
			s.refresh(feed.Changed, "")
			s.holds("9.9.9.8")
			s.refresh(feed.Unchanged, "")
		})
	}
}

// TestForeign uses a store in which another user can write. No copy may be read from it, and no list may be fetched into it.
func TestForeign(t *testing.T) {
	s := newScene(t)
	s.text("9.9.9.9\n")
	s.refresh(feed.Changed, "")
	c, _, err := s.store.Copy(s.source)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	for _, path := range []string{s.store.Dir, filepath.Dir(c.File), c.File} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		const says = "can be written by others"
		s.refresh("", path+" "+says)
		if _, set, err := s.store.Copy(s.source); err == nil || set != nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: the copy is %v, %v", path, set, err)
		}
		if is := s.store.Status(s.source); is.State != feed.StateNone || !strings.Contains(is.Why, says) {
			t.Errorf("%s: the status is %+v", path, is)
		}
		if err := os.Chmod(path, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	s.refresh(feed.Unchanged, "")
}

// grow makes the copy older.
func (s *scene) grow(by time.Duration) {
	s.Helper()
	c, _, err := s.store.Copy(s.source)
	if err != nil || c == nil {
		s.Fatal(c, err)
	}
	text, err := os.ReadFile(c.File)
	if err != nil {
		s.Fatal(err)
	}
	old, now := c.Fetched.Format(time.RFC3339), c.Fetched.Add(-by).Format(time.RFC3339)
	if err := os.WriteFile(c.File, bytes.Replace(text, []byte(old), []byte(now), 1), 0o600); err != nil {
		s.Fatal(err)
	}
}
