package node

import (
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// maxPrefixes is how many prefixes an agent remembers.
const maxPrefixes = 1_200_000

// live takes records that were just kept.
func (a *Agent) live(m *nats.Msg) {
	b, err := wire.ParseBatch(m.Data)
	if err != nil {
		return // the numbers that it had are missed, and asked for
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.take(b, true) {
		a.poke()
	}
}

// take takes records, live or those that were asked for. It reports false when they are too many at once.
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

// record takes what the hub knows of a prefix, but for what nobody may say.
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

// may tells whether a statement is one that its origin may make. The hub has looked too, and is not believed.
func (a *Agent) may(before, r wire.Record, s *wire.Statement) bool {
	if err := wire.CheckStatement(r.Prefix, s, a.clock.now()); err != nil && !errors.Is(err, wire.ErrEnded) {
		return false
	}
	if s.Origin != wire.Controller || before.Holds(s) {
		return true // the signature was verified when it came
	}
	return a.verify != nil && a.verify.Verify(wire.Signed(r.Prefix, s), s.Sig) == nil
}

// heard notes the time in a message of a hub, and reports whether the fleet's time has leapt. The first messages after a connection was lost can be
// late by seconds. Bans that were entered by them end late. So when a later message corrects the time, their ends are looked at again.
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

// pulse takes the time of a hub, and the number of the last record.
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
		a.stream.again() // with the time before, records may have been refused as said in the future, or forgotten as ended
	}
	if a.stream.told(p.Through) {
		a.poke()
	}
}
