// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math/rand/v2"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// stream is the part of the hub's stream that an agent has received.
type stream struct {
	epoch   uint64
	through uint64              // all records up to this number have been received
	ahead   map[uint64]struct{} // received records with greater numbers, beyond a gap
	known   uint64              // the number of the last record that a hub has announced
	behind  time.Time           // since when records are missing; zero: no missing record is known
	synced  bool                // all existing records of this epoch were received once
	request uint64              // number of the request that has no complete answer yet; 0: none
	asked   time.Time           // when records last arrived for this request
	wait    time.Time           // no request before this time
	swept   int
}

// maxAhead is the largest number of record numbers beyond a gap that are stored.
const maxAhead = 100_000

// How long to wait for late records, how long for an answer, and the longest wait before a request after a reconnect. The last wait is random, so
// that nodes do not all send requests at the same time.
const (
	lateWait  = 500 * time.Millisecond
	syncWait  = 10 * time.Second
	stormWait = 2 * time.Second
)

// epochIs starts from the beginning when the hub has a new stream. The node then offers all of its statements again.
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

// have records that a record was received.
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

// advance increases through up to the next gap.
func (s *stream) advance() {
	for {
		if _, ok := s.ahead[s.through+1]; !ok {
			return
		}
		s.through++
		delete(s.ahead, s.through)
	}
}

// told records that the hub has a record with this number. It reports whether records are missing.
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

// lost records that records may be missing, because a connection was lost.
func (s *stream) lost() {
	s.behind, s.request = time.Now(), 0
	if s.synced {
		s.wait = time.Now().Add(rand.N(stormWait))
	}
	s.synced = false
}

// again makes the agent request all records again.
func (s *stream) again() {
	s.through, s.ahead = 0, map[uint64]struct{}{}
	s.lost()
}

// complete records that all records up to a number were received.
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

// sync requests missing records when a request is due.
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
	_ = a.conn.PublishRequest(wire.SyncSubject(a.file.Name), a.inbox("sync", a.number), wire.After(s.through).Bytes()) // after an error, the request is sent again
}
