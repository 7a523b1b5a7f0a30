package node

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// Local is a change of the bans of this host that the fleet did not ask for.
type Local struct {
	Prefix netip.Prefix
	Gone   bool
	Start  time.Time // when it was made, by this host's clock
	End    time.Time // by this host's clock; zero: never
	Why    string
	Manual bool // a person asked for it
	Fleet  bool // this agent entered it, now or before the daemon was started again
}

// ownBan is a ban of this host.
type ownBan struct {
	Local
	statement wire.Statement // what was or will be said of it; its zero value: nothing yet
}

// fresh is how long ago a ban may have been made to count as made now: the log of bans knows whole seconds.
const fresh = 2 * time.Second

// near is a difference of ends that are the same: the log of bans knows whole seconds.
const near = 2 * time.Second

// Local takes changes of the bans of this host; with whole, all bans that it has, of which some may be known.
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

// found takes a ban of another node that this host has from before. It stays until the fleet says something else of the prefix.
func (a *Agent) found(l Local) {
	if a.prefixes.of(l.Prefix).entered || l.End.IsZero() || !l.End.After(time.Now()) {
		return
	}
	a.prefixes.enter(l.Prefix, time.Now().Add(time.Until(l.End.Round(0))))
	a.share.take(l.Prefix, wire.Controller) // it is in the set, and its node is told with the next record
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
	if whole { // it may have been said before the daemon was started again
		b.statement, _ = a.ledger.statement(b, a.file.Name)
	}
	a.prefixes.setOwn(l.Prefix, b)
	a.prefixes.dirty.add(l.Prefix) // it may have been lifted while nobody looked, or the fleet's end may be later than this one
	if !whole {
		a.forget(l.Prefix)
	}
}

// gone takes the end of a ban that somebody on this host has lifted. The fleet is told when the ban is this node's. A ban of others no longer
// holds on this host.
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

// spoke tells whether the fleet may have a ban of a prefix that this node has said: no other ban ends by its lift.
func (a *Agent) spoke(p netip.Prefix) bool {
	b := a.prefixes.of(p).own
	return b != nil && b.statement.Seq > 0 || a.table.Get(p).Last(a.file.Name) > 0 || !a.stream.synced
}

// next is the number of a statement that is made at a time.
func (a *Agent) next(at time.Time) uint64 {
	a.last = wire.NextSequence(at, a.last)
	return a.last
}

// say makes the statement of an own ban. It is made when it is first sent: before, the hub's time may not be known.
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
	a.last = max(a.last, seq) // a lift of it comes later, also when the hub's time goes back
	b.statement = wire.Statement{Origin: a.file.Name, Seq: seq, Until: until.UnixMilli(), Reason: short(b.Why)}
	a.ledger.said(b)
	return b.statement
}

// short is what the fleet keeps of a reason.
func short(why string) string { return why[:min(len(why), wire.MaxReason)] }

// sweepOwn forgets bans of this host that have ended. The fleet's ban of the same prefix may go on.
func (a *Agent) sweepOwn() {
	now := time.Now()
	for p := range a.prefixes.own {
		if b := a.prefixes.of(p).own; !b.End.IsZero() && !b.End.After(now) {
			a.prefixes.setOwn(p, nil)
			a.prefixes.dirty.add(p)
		}
	}
}

// offerAgain offers own bans of which the hub's record says nothing: its stream may have been lost, or enough others have ended theirs.
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
