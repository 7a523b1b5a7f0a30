// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
)

// Speaker contains the sessions, and announces the wanted announcements.
type Speaker struct {
	dir     string
	version string
	log     *slog.Logger // for announcements and withdrawals
	noise   *slog.Logger // for GoBGP

	mu       sync.Mutex
	wanted   *wire.Wanted
	sessions *sessions // nil: no sessions
	announced, withdrawn,
	refused uint64
	problem string
}

// New returns a speaker with a state directory. It restores the wanted sessions and announcements that the previous process stored.
func New(dir, version string, log, noise *slog.Logger) *Speaker {
	s := &Speaker{dir: dir, version: version, log: log, noise: noise, wanted: &wire.Wanted{}}
	wanted, err := read(dir)
	if err == nil {
		err = s.take(wanted)
	}
	if err != nil {
		s.problem = err.Error()
		log.Error("what was wanted is not taken up; nothing is announced until the daemon says what it wants", "error", err)
	}
	return s
}

// Put replaces the wanted sessions and announcements.
//
// An announcement is stored on the disk before it is announced. Otherwise a restarted process would not withdraw it. On a full disk, announcements
// can end, but none can start.
func (s *Speaker) Put(w *wire.Wanted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := w.Check(); err != nil {
		s.refused++
		return err
	}
	if sameWanted(s.wanted, w) && s.problem == "" {
		return nil
	}
	if err := write(s.dir, w); err != nil {
		s.problem = err.Error()
		err = fmt.Errorf("announcements are not kept, so none begins: %w", err)
		if forgotten := forget(s.dir); forgotten != nil {
			return fmt.Errorf("%w; %w", err, forgotten)
		}
		less := *s.wanted
		less.Announcements = slices.DeleteFunc(slices.Clone(less.Announcements), func(a wire.Announcement) bool {
			return !slices.ContainsFunc(w.Announcements, func(o wire.Announcement) bool { return o.Key() == a.Key() })
		})
		if taken := s.take(&less); taken != nil {
			return taken
		}
		return err
	}
	s.problem = ""
	err := s.take(w)
	if err != nil {
		s.problem = err.Error()
	}
	return err
}

// take changes the sessions to the wanted ones, and announces what is due.
func (s *Speaker) take(w *wire.Wanted) (err error) {
	if s.sessions != nil && (w.Upstream == nil || !s.sessions.fits(w.Upstream)) {
		s.sessions.close(false)
		s.withdrawn += uint64(len(s.sessions.out))
		s.sessions = nil
	}
	s.wanted = w
	switch {
	case w.Upstream == nil:
		return nil
	case s.sessions == nil:
		s.sessions, err = open(s.noise, w.Upstream, w.Passwords)
	default:
		err = s.sessions.change(w.Upstream, w.Passwords)
	}
	if err != nil {
		return err
	}
	return s.update(time.Now())
}

// update announces and withdraws the announcements that are due at a time.
func (s *Speaker) update(now time.Time) error {
	if s.sessions == nil {
		return nil
	}
	if err := s.sessions.again(now); err != nil {
		return err
	}
	due := s.due(now)
	for key := range s.sessions.out {
		if due[key] != nil {
			continue
		}
		if err := s.sessions.withdraw(key); err != nil {
			return err
		}
		s.withdrawn++
		s.log.Info("withdrawn", "announcement", key)
	}
	for key, a := range due {
		if s.sessions.has(a) {
			continue
		}
		if err := s.sessions.announce(a); err != nil {
			return err
		}
		s.announced++
		s.log.Info("announced", "announcement", key, "owner", a.Owner, "end", a.End.UTC().Format(time.RFC3339), "why", a.Why)
	}
	return nil
}

// due returns the announcements that must be announced at a time, by their keys. If routers do not accept all, it returns the oldest.
func (s *Speaker) due(now time.Time) map[string]*wire.Announcement {
	list := slices.Clone(s.wanted.Announcements)
	slices.SortStableFunc(list, func(a, b wire.Announcement) int { return a.Start.Compare(b.Start) })
	due, of := map[string]*wire.Announcement{}, map[netip.Addr]int{}
	for i := range list {
		a := &list[i]
		if !s.wanted.Upstream.Live || !a.Out(now) || wire.Full(s.wanted.Upstream, a.Family(), of) != nil {
			continue
		}
		for _, p := range s.wanted.Upstream.Peers {
			if slices.Contains(p.Families, a.Family()) {
				of[p.Address]++
			}
		}
		due[a.Key()] = a
	}
	return due
}

// look is how often the speaker checks whether an announcement starts or ends.
const look = 200 * time.Millisecond

// Run withdraws announcements at their ends, until ctx ends. It then closes the sessions gracefully, so that routers keep the routes for the graceful
// restart time, and a restart of the process has no effect on the routes.
func (s *Speaker) Run(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.sessions != nil {
				s.sessions.close(true)
				s.sessions = nil
			}
			return
		case <-tick.C:
		}
		s.mu.Lock()
		if err := s.update(time.Now()); err != nil {
			s.problem = err.Error()
		}
		s.mu.Unlock()
	}
}

// Status returns the present state of the speaker.
func (s *Speaker) Status() (wire.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := wire.Status{
		Version: s.version, Sessions: []wire.Session{}, Announcements: []wire.AnnouncedStatus{},
		Announced: s.announced, Withdrawn: s.withdrawn, Refused: s.refused, Problem: s.problem,
	}
	if s.sessions == nil {
		return st, nil
	}
	st.Live = s.wanted.Upstream.Live
	var err error
	if st.Sessions, err = s.sessions.states(); err != nil {
		return st, err
	}
	for _, a := range s.wanted.Announcements {
		is := wire.AnnouncedStatus{Announcement: a, Peers: []netip.Addr{}}
		if is.Route, err = RouteText(s.wanted.Upstream, &a); err != nil {
			return st, err
		}
		if s.sessions.has(&a) {
			is.Peers = append(is.Peers, s.sessions.peersOf(a.Family(), st.Sessions)...)
		}
		if a.End.After(time.Now()) {
			st.Announcements = append(st.Announcements, is)
		}
	}
	return st, nil
}

// Received returns the FlowSpec routes of the routers.
func (s *Speaker) Received() (r wire.Received, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		return wire.Received{Routes: []wire.Route{}}, nil
	}
	return s.sessions.received()
}
