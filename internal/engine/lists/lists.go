// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/sources/geo"
	"github.com/floodwall/floodwall/policy"
)

// sourceOf returns the source from which a set is fetched.
func sourceOf(s *policy.Set) feed.Source {
	f := s.Feed
	return feed.Source{Set: s.Name, URL: f.URL, Every: f.Every, Max: s.Max, Shrink: f.Shrink, Grow: f.Grow,
		Format: feed.Format(f.Format), SHA256: f.SHA256, Minisign: f.Minisign}
}

// FetchMissing fetches the lists of a policy that have no copy in the store. Without these lists the policy would not do what its author wrote.
func FetchMissing(ctx context.Context, store feed.Store, p *policy.Policy, f *feed.Fetcher) error {
	var all sync.WaitGroup
	errs := make(policy.Errors, len(p.Sets))
	for i := range p.Sets {
		s := &p.Sets[i]
		if s.Feed == nil {
			continue
		}
		if c, _, err := store.Copy(sourceOf(s)); c != nil && err == nil {
			continue
		}
		all.Go(func() {
			if _, err := store.Refresh(ctx, f, sourceOf(s), true); err != nil {
				hint := "mend the address or the server, or name a list on this host by file until it can be fetched"
				if errors.As(err, new(*fs.PathError)) { // a file of this host
					hint = "see why this file cannot be written: the disk may be full"
				}
				errs[i] = &policy.Error{File: p.File, Line: s.Pos.Line, Col: s.Pos.Col, Msg: fmt.Sprintf("%v; there is no earlier copy of it", err), Hint: hint}
			}
		})
	}
	all.Wait()
	if errs = slices.DeleteFunc(errs, func(e *policy.Error) bool { return e == nil }); len(errs) > 0 {
		return errors.Join(ctx.Err(), errs)
	}
	return nil
}

// WithCopies sets the content of each fetched set to its last good copy. The notes list these copies.
func WithCopies(p *policy.Policy, store feed.Store) (*policy.Policy, []string, error) {
	out := *p
	out.Sets = slices.Clone(p.Sets)
	var notes []string
	for i := range out.Sets {
		s := &out.Sets[i]
		if s.Feed == nil {
			continue
		}
		var c *feed.Copy
		if store.Dir != "" {
			var err error
			if c, _, err = store.Copy(sourceOf(s)); err != nil && !errors.Is(err, os.ErrPermission) {
				return nil, nil, err
			}
		}
		if c == nil {
			notes = append(notes, fmt.Sprintf("set %q is empty here: there is no copy of its list, which `apply` fetches", s.Name))
			continue
		}
		s.File = c.File
		notes = append(notes, fmt.Sprintf("set %q has the %d entries that were fetched %s", s.Name, c.Entries, ago(c.Fetched)))
	}
	return &out, notes, nil
}

// ago says in words how long ago t was.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < 2*time.Minute:
		return "just now"
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f minutes ago", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f hours ago", d.Hours())
	}
	return fmt.Sprintf("%.0f days ago", d.Hours()/24)
}

// Live determines the contents of the live sets of a program. From fetched lists it removes the addresses that this host needs. It returns the
// program with these contents, and the state of the sets for the manifest. p is the policy from which lowered was compiled.
func Live(store feed.Store, p *policy.Policy, lowered *ir.Program, operators []netip.Prefix) (*ir.Program, []manifest.Live) {
	if !slices.ContainsFunc(lowered.Sets, func(s ir.Set) bool { return s.Live }) {
		return lowered, nil
	}
	program := *lowered
	program.Sets = slices.Clone(lowered.Sets)
	allowed := Allowlist(lowered.Never, operators)
	var live []manifest.Live
	for i := range program.Sets {
		s := &program.Sets[i]
		at := slices.IndexFunc(p.Sets, func(of policy.Set) bool { return of.Name == s.Name })
		if !s.Live || at < 0 {
			continue
		}
		of := &p.Sets[at]
		l := manifest.Live{Set: s.Name}
		if of.Feed != nil {
			source := sourceOf(of)
			l.Feed = &source
		} else {
			l.Geo = &manifest.Database{Wanted: geo.Wanted{Countries: of.Geo.Countries, ASNs: of.Geo.ASNs}, File: beside(p.File, of.Geo.Written)}
		}
		s.Static = Screen(&l, s.Static, allowed)
		s.Entries = l.Entries
		if of.Geo == nil || of.Geo.DB == of.Geo.Written { // otherwise a copy for boot was read, and the database file may have changed
			l.Origin, _ = Origin(store, &l)
		}
		live = append(live, l)
	}
	return &program, live
}

// Screen removes the addresses of the allowlist from the content of a fetched set, and records the removed entries in l.
func Screen(l *manifest.Live, content *addrs.Set, allowed []feed.AllowEntry) *addrs.Set {
	l.Spared, l.More = nil, 0
	if l.Feed != nil {
		clean := feed.Screened{Set: content}
		clean.Allow(allowed)
		content, l.Spared, l.More = clean.Set, clean.Removed, clean.More
	}
	l.Entries = 0
	for range content.Prefixes() {
		l.Entries++
	}
	l.Sum, l.Since = manifest.SumOf(content), time.Now().UTC().Truncate(time.Second)
	return content
}

// Allowlist returns the addresses that no external list may contain on this host: addresses that the policy never bans, addresses of its operators,
// and addresses that the host needs.
func Allowlist(never *addrs.Set, operators []netip.Prefix) (list []feed.AllowEntry) {
	if never != nil {
		for p := range never.Prefixes() {
			list = append(list, feed.AllowEntry{Prefix: p, Why: "never"})
		}
	}
	for _, p := range operators {
		list = append(list, feed.AllowEntry{Prefix: p, Why: "a session of an operator"})
	}
	for _, l := range facts.Lifelines() {
		why := "a link, gateway, resolver or session of this host"
		if l.Own {
			why = "an address of this host"
		}
		list = append(list, feed.AllowEntry{Prefix: l.Prefix, Why: why})
	}
	return list
}

// beside returns the absolute path of a file that a policy names.
func beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	if dir, err := filepath.Abs(filepath.Dir(file)); err == nil {
		return filepath.Join(dir, path)
	}
	return path
}

// Notes returns notes on the addresses that were removed from lists because this host needs them.
func Notes(live []manifest.Live) (notes []string) {
	for i := range live {
		if text := live[i].Screened().Reasons(); text != "" {
			notes = append(notes, fmt.Sprintf("set %q is without %s", live[i].Set, text))
		}
	}
	return notes
}

// Origin returns a text that identifies the copy or the database from which a set is read. It returns "" when there is none.
func Origin(store feed.Store, l *manifest.Live) (string, error) {
	if l.Feed != nil {
		return store.Mark(*l.Feed)
	}
	info, err := os.Stat(l.Geo.File)
	if err != nil {
		return "", fmt.Errorf("set %q: %w", l.Set, err)
	}
	return fmt.Sprintf("%d bytes of %d", info.Size(), info.ModTime().UnixNano()), nil
}

// Content reads the present content of a set. It returns nil when there is no copy.
func Content(store feed.Store, l *manifest.Live) (*addrs.Set, error) {
	if l.Feed != nil {
		c, set, err := store.Copy(*l.Feed)
		if c == nil {
			return nil, err
		}
		return set, err
	}
	set, _, err := geo.Read(l.Geo.File, l.Geo.Wanted)
	if err != nil {
		return nil, fmt.Errorf("set %q: %w", l.Set, err)
	}
	return set, nil
}
