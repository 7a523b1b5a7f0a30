// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// Local is a change of this host's bans that the fleet did not request.
type Local struct {
	Prefix netip.Prefix
	Gone   bool
	Start  time.Time // when the ban was made, by this host's clock
	End    time.Time // end of the ban, by this host's clock; zero: never
	Why    string
	Manual bool // a person requested the ban
	Fleet  bool // this agent entered the ban, now or before a restart of the daemon
}

// ownBan is a ban of this host.
type ownBan struct {
	Local
	statement wire.Statement // the statement about the ban; zero: none yet
}

// fresh is the greatest age of a ban that counts as new. It is not smaller because the log of bans has whole seconds.
const fresh = 2 * time.Second

// near is the greatest difference between two ends that count as equal. It is not smaller because the log of bans has whole seconds.
const near = 2 * time.Second

// Local processes changes of this host's bans. If whole is true, the list contains all bans of this host, and some of them may be known already.
func (a *Agent) Local(list []Local, whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range list {
		switch l := list[i]; {
		case l.Gone:
			a.gone(l)
		case l.Fleet && whole:
			a.found(l)
		case !l.Fleet:
			a.banned(l, whole)
		}
	}
	a.poke()
}

// found processes another node's ban that this host had before a restart. The ban stays until a record of the fleet changes it.
func (a *Agent) found(l Local) {
	if a.prefixes.of(l.Prefix).entered || l.End.IsZero() || !l.End.After(time.Now()) {
		return
	}
	a.prefixes.enter(l.Prefix, time.Now().Add(time.Until(l.End.Round(0))))
	a.share.take(l.Prefix, wire.Controller) // the ban is in the set; the next record tells which node made it
	a.prefixes.dirty.add(l.Prefix)
}

func (a *Agent) banned(l Local, whole bool) {
	if !l.End.IsZero() && !l.End.After(time.Now()) {
		return
	}
	if was := a.prefixes.of(l.Prefix).own; was != nil && was.End.Sub(l.End).Abs() <= near && (whole || was.Start.Equal(l.Start)) {
		return
	}
	b := &ownBan{Local: l}
	if whole { // the statement about the ban may be from before a restart
		b.statement, _ = a.ledger.statement(b, a.file.Name)
	}
	a.prefixes.setOwn(l.Prefix, b)
	a.prefixes.dirty.add(l.Prefix) // somebody may have lifted the ban while the daemon did not run, or the fleet's ban may end later
	if !whole {
		a.forget(l.Prefix)
	}
}

// gone processes the end of a ban that was lifted on this host. If the ban is this node's, the node offers the lift to the fleet. If the ban is of
// other nodes, it no longer applies on this host.
func (a *Agent) gone(l Local) {
	if a.prefixes.undoneTold(l.Prefix) {
		return
	}
	if s := a.prefixes.of(l.Prefix); s.own == nil && !s.entered && len(a.table.Get(l.Prefix).Statements) == 0 {
		return
	}
	spoke := a.spoke(l.Prefix)
	a.prefixes.setOwn(l.Prefix, nil)
	a.forget(l.Prefix)
	s := wire.Statement{Origin: a.file.Name, Seq: a.next(a.clock.now())}
	if spoke && wire.Shared(l.Prefix) {
		a.prefixes.offerLift(l.Prefix, s)
	}
	a.ledger.lifted(l.Prefix, s.Seq)
	a.table.Merge(wire.Record{Prefix: l.Prefix, Statements: []wire.Statement{s}})
}

// spoke reports whether the fleet may have this node's ban of a prefix. If not, the node need not offer a lift, because its lift ends no other ban.
func (a *Agent) spoke(p netip.Prefix) bool {
	b := a.prefixes.of(p).own
	return b != nil && b.statement.Seq > 0 || a.table.Get(p).Last(a.file.Name) > 0 || !a.stream.synced
}

// next returns the number of the next statement. at is the time of the statement.
func (a *Agent) next(at time.Time) uint64 {
	a.last = wire.NextSequence(at, a.last)
	return a.last
}

// say returns the statement about an own ban. It makes the statement when the ban is first sent, because the hub's time may be unknown before.
func (a *Agent) say(b *ownBan) wire.Statement {
	if b.statement.Seq != 0 {
		return b.statement
	}
	now := a.clock.now()
	at := now
	if since := time.Since(b.Start.Round(0)); since > fresh && since < wire.Longest {
		at = now.Add(-since)
	}
	until := at.Add(wire.Longest)
	if !b.End.IsZero() {
		if end := now.Add(time.Until(b.End.Round(0))); end.Before(until) {
			until = end
		}
	}
	seq := uint64(at.UnixMicro())
	if at.Equal(now) || seq <= a.table.Get(b.Prefix).Last(a.file.Name) {
		seq = a.next(now)
	}
	a.last = max(a.last, seq) // a lift must have a greater number, even if the hub's time goes back
	b.statement = wire.Statement{Origin: a.file.Name, Seq: seq, Until: until.UnixMilli(), Reason: short(b.Why)}
	a.ledger.said(b)
	return b.statement
}

// short returns the part of a reason that the fleet stores.
func short(why string) string { return why[:min(len(why), wire.MaxReason)] }

// sweepOwn removes this host's bans that have ended. The fleet's ban of the same prefix may continue.
func (a *Agent) sweepOwn() {
	now := time.Now()
	for p := range a.prefixes.own {
		if b := a.prefixes.of(p).own; !b.End.IsZero() && !b.End.After(now) {
			a.prefixes.setOwn(p, nil)
			a.prefixes.dirty.add(p)
		}
	}
}

// offerAgain offers own bans again that are missing in the hub's record. Either the stream was lost, or the bans of other nodes that sufficed before
// have ended.
func (a *Agent) offerAgain() {
	now := a.clock.now().UnixMilli()
	for p := range a.prefixes.own {
		b := a.prefixes.of(p).own
		if b.statement.Seq == 0 || b.statement.Until <= now {
			continue
		}
		if r := a.table.Get(p); !r.Has(&b.statement) && !r.Lifted(a.file.Name, b.statement.Seq) && r.Open() {
			a.prefixes.offerOwn(p)
		}
	}
}
