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

// Speaker holds sessions, and announces what is wanted while it is.
type Speaker struct {
	dir     string
	version string
	log     *slog.Logger // of what is announced and withdrawn
	noise   *slog.Logger // of GoBGP

	mu       sync.Mutex
	wanted   *wire.Wanted
	sessions *sessions // nil: none
	announced, withdrawn,
	refused uint64
	problem string
}

// New is a speaker with a state directory. It takes up what was wanted when the last one ended.
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

// Put replaces what is wanted.
//
// What is announced is on the disk before it goes out: else a restart would leave it. On a disk that takes nothing, announcements can
// end, and none can begin.
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

// take makes the sessions those that are wanted, and announces what is due.
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

// update announces what is due at a time, and withdraws what is not.
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

// due are the announcements that are to be out at a time, by their keys: the oldest, where routers take no more.
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

// look is how often the speaker looks whether an announcement begins or ends.
const look = 200 * time.Millisecond

// Run ends announcements at their ends, until ctx ends. Then it leaves the sessions so that routers keep the routes for the time of
// graceful restart: a restart of the process is not to be seen.
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

// Status is how the speaker stands.
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

// Received are the FlowSpec routes of the routers.
func (s *Speaker) Received() (r wire.Received, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		return wire.Received{Routes: []wire.Route{}}, nil
	}
	return s.sessions.received()
}
