package node

import (
	"math/rand/v2"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// stream is how much of the hub's stream an agent has.
type stream struct {
	epoch   uint64
	through uint64              // all records up to this number were received,
	ahead   map[uint64]struct{} // and these
	known   uint64              // the number of the last record of which a hub has told
	behind  time.Time           // since when records are missing; zero: none is known to
	synced  bool                // all that there was has been received once in this epoch
	request uint64              // the request that waits for an answer, 0 for none
	asked   time.Time           // when records last came for it
	wait    time.Time           // until when not to ask
	swept   int
}

// maxAhead is how many numbers beyond a gap are remembered.
const maxAhead = 100_000

// How long to wait for records that are late, for an answer, and at most before asking after a reconnect: so that nodes do not all ask
// at once.
const (
	lateWait  = 500 * time.Millisecond
	syncWait  = 10 * time.Second
	stormWait = 2 * time.Second
)

// epochIs begins anew when the hub has another stream than before, and says again all that this node has said.
func (a *Agent) epochIs(epoch uint64) {
	s := &a.stream
	if epoch == s.epoch {
		return
	}
	for p := range a.prefixes.own {
		a.prefixes.offerOwn(p)
	}
	for r := range a.table.All() {
		for i := range r.Statements {
			if s := r.Statements[i]; s.Lift() && s.Origin == a.file.Name {
				a.prefixes.offerLift(r.Prefix, s)
			}
		}
	}
	*s = stream{epoch: epoch, ahead: map[uint64]struct{}{}, wait: s.wait, behind: time.Now(), swept: s.swept}
}

// have notes that a record was received.
func (s *stream) have(number uint64) {
	if number <= s.through {
		return
	}
	if len(s.ahead) < maxAhead {
		s.ahead[number] = struct{}{}
	}
	s.advance()
	s.told(number)
}

// advance goes on to the first gap.
func (s *stream) advance() {
	for {
		if _, ok := s.ahead[s.through+1]; !ok {
			return
		}
		s.through++
		delete(s.ahead, s.through)
	}
}

// told notes that there is a record of this number. It reports whether records are missing.
func (s *stream) told(number uint64) bool {
	s.known = max(s.known, number)
	switch {
	case s.synced && s.through >= s.known:
		s.behind = time.Time{}
		return false
	case s.behind.IsZero():
		s.behind = time.Now()
	}
	return true
}

// lost notes that records may be missing, after a connection was.
func (s *stream) lost() {
	s.behind, s.request = time.Now(), 0
	if s.synced {
		s.wait = time.Now().Add(rand.N(stormWait))
	}
	s.synced = false
}

// again notes that all records are to be asked for.
func (s *stream) again() {
	s.through, s.ahead = 0, map[uint64]struct{}{}
	s.lost()
}

// complete notes that all up to a number was received.
func (s *stream) complete(through uint64) {
	s.through, s.synced, s.request = max(s.through, through), true, 0
	for n := range s.ahead {
		if n <= s.through {
			delete(s.ahead, n)
		}
	}
	s.behind = time.Time{}
	s.advance()
	if s.told(through) {
		s.wait = time.Now().Add(lateWait)
	}
}

// sync asks for what is missing, when it is due.
func (a *Agent) sync() {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, now := &a.stream, time.Now()
	switch {
	case s.behind.IsZero() || !a.conn.IsConnected() || now.Before(s.wait):
		return
	case s.request != 0 && now.Sub(s.asked) < syncWait:
		return
	case s.synced && now.Sub(s.behind) < lateWait:
		return
	}
	a.number++
	s.request, s.asked = a.number, now
	s.wait = now.Add(look)
	_ = a.conn.PublishRequest(wire.SyncSubject(a.file.Name), a.inbox("sync", a.number), wire.After(s.through).Bytes()) // else it is asked again
}
