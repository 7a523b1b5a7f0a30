// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/policy"
)

// Book stores announcements in a directory, so that they survive crashes. Commands and the daemon write the book under a lock.
type Book struct{ dir string }

// InState returns the Book of an instance in the state directory.
func InState(state, bpffs, standard string) Book {
	return Book{filepath.Join(state, instance.With("upstream", bpffs, standard))}
}

// pages is the content of the book.
type pages struct {
	Announcements []wire.Announcement `json:"announcements"`
	Flaps         map[string]flap     `json:"flaps"` // flaps of ended announcements, by the announcements' keys
}

// flap records how often an announcement has ended recently.
type flap struct {
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
}

// An announcement that has ended must wait before it is announced again. The wait begins with hold, and doubles each time up to longestWait. After an
// hour without the announcement, the wait is reset. This is route flap damping as in RFC 2439, but by the sender of the route and not by the
// receiver.
const (
	longestWait = time.Hour
	forgetAfter = time.Hour
)

// mostFlaps is the largest number of stored flaps.
const mostFlaps = 10_000

// Request is a request for an announcement.
type Request struct {
	Kind  wire.Kind
	Flow  wire.Flow
	Owner string
	Why   string
	For   time.Duration
	Now   bool // the request is urgent: the announcement does not wait
}

// FullError is the error when a router accepts no more announcements.
type FullError struct {
	Peer netip.Addr
	Max  int
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%s has its %d announcements, and takes no more", e.Peer, e.Max)
}

// Hint is the remedy.
func (e *FullError) Hint() string {
	return "withdraw one (`floodwall-bgp status` lists them), or raise `max` of the router, if your provider agrees"
}

// FamilyError is the error when no router accepts a kind of route.
type FamilyError struct{ Family policy.Family }

func (e *FamilyError) Error() string {
	return fmt.Sprintf("no router takes routes of the family %s", e.Family)
}

// Hint is the remedy.
func (e *FamilyError) Hint() string {
	return "see `families` and `rtbh: {next_hop: …}` of the policy's `upstream`"
}

// Plan returns the announcement that Announce would enter now.
func (b Book) Plan(ctx context.Context, u *policy.Upstream, r Request, now time.Time) (a wire.Announcement, err error) {
	err = b.locked(ctx, func(p *pages) (bool, error) {
		a, err = p.plan(u, r, now)
		return false, err
	})
	return a, err
}

// Announce enters an announcement. If the announcement exists already, it continues, and becomes longer if the request has a later end.
func (b Book) Announce(ctx context.Context, u *policy.Upstream, r Request, now time.Time) (a wire.Announcement, err error) {
	err = b.locked(ctx, func(p *pages) (bool, error) {
		p.end(now)
		if a, err = p.plan(u, r, now); err != nil {
			return false, err
		}
		p.remove(a.Key())
		p.Announcements = append(p.Announcements, a)
		return true, nil
	})
	return a, err
}

func (p *pages) plan(u *policy.Upstream, r Request, now time.Time) (wire.Announcement, error) {
	a := wire.Announcement{Kind: r.Kind, Flow: r.Flow, Owner: r.Owner, Why: r.Why, Start: now.Round(0)}
	if f := p.Flaps[a.Key()]; f.Count > 0 && !r.Now && now.Sub(f.Last) < forgetAfter {
		wait := min(u.Hold<<min(f.Count-1, 12), longestWait)
		a.Start = later(now, f.Last.Add(wait))
	}
	a.Hold = a.Start.Add(u.Hold)
	a.End = later(a.Start.Add(r.For), a.Hold)
	has := map[netip.Addr]int{}
	for _, other := range p.Announcements {
		if !other.End.After(now) {
			continue
		}
		if other.Key() == a.Key() {
			if !r.Now || other.Out(now) { // in the other case the announcement waited, and is announced now
				a.Start, a.Hold, a.Owner = other.Start, other.Hold, other.Owner
				a.End = later(a.End, other.End)
			}
			continue
		}
		for _, peer := range u.Peers {
			if slices.Contains(peer.Families, other.Family()) {
				has[peer.Address]++
			}
		}
	}
	if err := a.Check(u); err != nil {
		return a, err
	}
	if !slices.ContainsFunc(u.Peers, func(o policy.Peer) bool { return slices.Contains(o.Families, a.Family()) }) {
		return a, &FamilyError{a.Family()}
	}
	if full := wire.Full(u, a.Family(), has); full != nil {
		return a, &FullError{full.Address, full.Max}
	}
	return a, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b.Round(0)
	}
	return a.Round(0)
}

// Withdraw ends announcements that match. An announcement within its minimum hold time ends at once only if insist is true, and otherwise after that
// time. An announcement that still waits is never announced. Withdraw returns the announcements that have ended, and those that will end.
func (b Book) Withdraw(ctx context.Context, match func(*wire.Announcement) bool, insist bool, now time.Time) (gone, held []wire.Announcement, err error) {
	err = b.locked(ctx, func(p *pages) (bool, error) {
		p.end(now)
		for i := range p.Announcements {
			a := &p.Announcements[i]
			if !match(a) {
				continue
			}
			if a.Out(now) && a.Hold.After(now) && !insist {
				a.End = a.Hold
				held = append(held, *a)
				continue
			}
			gone = append(gone, *a)
		}
		for _, a := range gone {
			if p.remove(a.Key()); a.Out(now) { // an announcement that waited was never announced
				p.ended(a.Key(), now)
			}
		}
		return len(gone)+len(held) > 0, nil
	})
	return gone, held, err
}

// List returns the announcements that have not ended.
func (b Book) List(ctx context.Context, now time.Time) (list []wire.Announcement, err error) {
	err = b.Hold(ctx, now, func(all []wire.Announcement) error { list = all; return nil })
	return list, err
}

// Hold calls do with the announcements that have not ended, while the book is locked.
func (b Book) Hold(ctx context.Context, now time.Time, do func([]wire.Announcement) error) error {
	return b.locked(ctx, func(p *pages) (bool, error) {
		changed := p.end(now)
		return changed, do(p.Announcements)
	})
}

func (p *pages) remove(key string) {
	p.Announcements = slices.DeleteFunc(p.Announcements, func(a wire.Announcement) bool { return a.Key() == key })
}

// end moves announcements that have ended to the flaps, and removes old flaps.
func (p *pages) end(now time.Time) (changed bool) {
	for _, a := range slices.Clone(p.Announcements) {
		if !a.End.After(now) {
			p.remove(a.Key())
			p.ended(a.Key(), a.End)
			changed = true
		}
	}
	for key, f := range p.Flaps {
		if now.Sub(f.Last) >= forgetAfter {
			delete(p.Flaps, key)
			changed = true
		}
	}
	return changed
}

func (p *pages) ended(key string, at time.Time) {
	if f, known := p.Flaps[key]; known || len(p.Flaps) < mostFlaps {
		p.Flaps[key] = flap{f.Count + 1, at}
	}
}

// bookFile is the file with the pages.
const bookFile = "announcements.json"

// locked reads the book under a lock, calls change, and writes the book when change returns true.
func (b Book) locked(ctx context.Context, change func(*pages) (bool, error)) error {
	unlock, err := safefile.Lock(ctx, b.dir, func() error { return os.MkdirAll(b.dir, 0o700) })
	if err != nil {
		return err
	}
	defer unlock()
	name := filepath.Join(b.dir, bookFile)
	p := &pages{}
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &BrokenError{name, err}
	}
	if p.Flaps == nil {
		p.Flaps = map[string]flap{}
	}
	changed, err := change(p)
	if changed {
		err = errors.Join(err, save(name, p))
	}
	return err
}

// BrokenError is the error when the book cannot be read.
type BrokenError struct {
	File string
	Err  error
}

func (e *BrokenError) Error() string { return fmt.Sprintf("%s: %v", e.File, e.Err) }

// Hint is the remedy.
func (e *BrokenError) Hint() string { return "remove the file: then nothing is announced" }

func save(name string, p *pages) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return safefile.Replace(name, text, 0o600)
}
