// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// maxPrefixes is the largest number of prefixes that an agent stores.
const maxPrefixes = 1_200_000

// live receives records that were just stored.
func (a *Agent) live(m *nats.Msg) {
	b, err := wire.ParseBatch(m.Data)
	if err != nil {
		return // the numbers of its records are then missing, and the records are requested again
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.take(b, true) {
		a.poke()
	}
}

// take processes new records or requested records. It returns false when there are too many at once.
func (a *Agent) take(b wire.Batch, live bool) bool {
	a.heard(anyHub, b.Now)
	a.epochIs(b.Epoch)
	if !a.space.Take(a.clock.now(), len(b.Records)) {
		a.stream.lost()
		return false
	}
	for _, r := range b.Records {
		a.record(r.Record)
		if live {
			a.stream.have(r.Number)
		}
	}
	return true
}

// record processes the hub's record of a prefix. It removes statements that their origins must not make.
func (a *Agent) record(r wire.Record) {
	before := a.table.Get(r.Prefix)
	if len(before.Statements) == 0 && a.table.Len() >= maxPrefixes {
		a.counts.Refused++
		return
	}
	all := len(r.Statements)
	r.Statements = slices.DeleteFunc(r.Statements, func(s wire.Statement) bool { return !a.may(before, r, &s) })
	a.counts.Refused += uint64(all - len(r.Statements))
	for i := range r.Statements {
		if s := &r.Statements[i]; s.Origin == a.file.Name {
			a.taken(r.Prefix, s.Seq)
		}
	}
	if _, changed := a.table.Merge(r); changed {
		a.prefixes.dirty.add(r.Prefix)
	}
}

// may reports whether the origin of a statement may make it. The hub also checks this, but nodes do not trust the hub.
func (a *Agent) may(before, r wire.Record, s *wire.Statement) bool {
	if err := wire.CheckStatement(r.Prefix, s, a.clock.now()); err != nil && !errors.Is(err, wire.ErrEnded) {
		return false
	}
	if s.Origin != wire.Controller || before.Holds(s) {
		return true // the signature was verified when the record arrived
	}
	return a.verify != nil && a.verify.Verify(wire.Signed(r.Prefix, s), s.Sig) == nil
}

// heard records the time in a message of a hub. It reports whether the fleet's time has leapt. The first messages after a lost connection can be late
// by seconds, and bans that are entered by these messages would end too late. So when a later message corrects the time, the ends of these bans are
// checked again.
func (a *Agent) heard(hub uint64, at time.Time) (leapt bool) {
	before := a.clock.ahead
	leapt = a.clock.heard(hub, at)
	if a.drift += a.clock.ahead - before; a.drift.Abs() > slack {
		a.drift = 0
		for p, s := range a.prefixes.states {
			if s.entered {
				a.prefixes.dirty.add(p)
			}
		}
		a.poke()
	}
	return leapt
}

// pulse processes a pulse of a hub: its time and the number of the last record.
func (a *Agent) pulse(m *nats.Msg) {
	p, err := wire.ParsePulse(m.Data)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beat = time.Now()
	leapt := a.heard(p.Hub, p.Now)
	a.epochIs(p.Epoch)
	if leapt {
		a.stream.again() // while the time was wrong, records may have been refused as future ones, or removed as ended
	}
	if a.stream.told(p.Through) {
		a.poke()
	}
}
