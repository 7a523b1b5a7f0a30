package node

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// prefixState is what an agent knows of one prefix beside the record of the hub. Its zero value says nothing.
type prefixState struct {
	own         *ownBan         // the ban of this host; nil: none
	lift        *wire.Statement // by this node, to be offered; nil: none
	until       time.Time       // end of the entered ban by this host's monotonic clock; zero: the enforcer is still to end it
	undone      int             // bans that this agent ended itself, which the log of bans is still to tell
	entered     bool            // this host has a ban of another node
	pending     bool            // own is to be offered
	owed        bool            // lifted, but the enforcer could not end it yet
	allowlisted bool            // a ban of another node was not entered because of Agent.never
	kept        bool            // a ban of another node was not entered beside one of this host
}

// prefixTable has the states of all prefixes. Only change writes states and what is derived from them.
type prefixTable struct {
	states  map[netip.Prefix]prefixState // those that say something
	entered int                          // how many are entered
	own     prefixSet                    // those with an own ban
	pending prefixSet                    // those whose own ban is to be offered
	lifts   prefixSet                    // those whose lift is to be offered
	kept    prefixSet                    // those of which a ban of another node was not entered beside one of this host
	dirty   prefixSet                    // the queue of those that are to be compared with their records
}

type prefixSet map[netip.Prefix]struct{}

func newPrefixTable() prefixTable {
	return prefixTable{states: map[netip.Prefix]prefixState{}, own: prefixSet{}, pending: prefixSet{}, lifts: prefixSet{}, kept: prefixSet{}, dirty: prefixSet{}}
}

func (s prefixSet) add(p netip.Prefix) { s[p] = struct{}{} }

// put adds a prefix, or deletes it.
func (s prefixSet) put(p netip.Prefix, in bool) {
	if in {
		s.add(p)
	} else {
		delete(s, p)
	}
}

// of is the state of a prefix.
func (t *prefixTable) of(p netip.Prefix) prefixState { return t.states[p] }

// change has by change the state of a prefix. A state that says nothing any more is deleted.
func (t *prefixTable) change(p netip.Prefix, by func(*prefixState)) {
	was := t.states[p]
	s := was
	by(&s)
	if s == was {
		return
	}
	if s == (prefixState{}) {
		delete(t.states, p)
	} else {
		t.states[p] = s
	}
	switch {
	case s.entered && !was.entered:
		t.entered++
	case !s.entered && was.entered:
		t.entered--
	}
	t.own.put(p, s.own != nil)
	t.pending.put(p, s.pending)
	t.lifts.put(p, s.lift != nil)
	t.kept.put(p, s.kept)
}

// enter notes that this host has a ban of another node. With a zero end, the enforcer is still to end it.
func (t *prefixTable) enter(p netip.Prefix, until time.Time) {
	t.change(p, func(s *prefixState) { s.entered, s.until = true, until })
}

// leave notes that this host has no ban of another node.
func (t *prefixTable) leave(p netip.Prefix) {
	t.change(p, func(s *prefixState) { s.entered, s.until = false, time.Time{} })
}

// setOwn notes a ban of this host, which is to be offered. nil: it has none.
func (t *prefixTable) setOwn(p netip.Prefix, b *ownBan) {
	t.change(p, func(s *prefixState) { s.own, s.pending = b, b != nil && wire.Shared(p) })
}

// offerOwn has an own ban offered, unless it is of a length that nodes may not ban: that holds on this host alone.
func (t *prefixTable) offerOwn(p netip.Prefix) {
	t.change(p, func(s *prefixState) { s.pending = s.own != nil && wire.Shared(p) })
}

// offerLift has a lift by this node offered.
func (t *prefixTable) offerLift(p netip.Prefix, lift wire.Statement) {
	t.change(p, func(s *prefixState) { s.lift = &lift })
}

// decided notes that the hub has decided on a statement of this node. It reports whether the statement was still to be offered.
func (t *prefixTable) decided(p netip.Prefix, seq uint64) (was bool) {
	t.change(p, func(s *prefixState) {
		if s.lift != nil && s.lift.Seq == seq {
			s.lift, was = nil, true
		}
		if s.own != nil && s.own.statement.Seq == seq {
			s.pending, was = false, was || s.pending
		}
	})
	return was
}

// setOwed notes whether the enforcer is still to end what was lifted.
func (t *prefixTable) setOwed(p netip.Prefix, owed bool) {
	t.change(p, func(s *prefixState) { s.owed = owed })
}

// undo notes that this agent ends a ban itself. The log of bans will tell of it.
func (t *prefixTable) undo(p netip.Prefix) {
	t.change(p, func(s *prefixState) { s.undone++ })
}

// undoneTold takes one back: the log of bans has told of it, or there was no ban to end. It reports whether there was one to take back.
func (t *prefixTable) undoneTold(p netip.Prefix) (was bool) {
	t.change(p, func(s *prefixState) {
		if was = s.undone > 0; was {
			s.undone--
		}
	})
	return was
}

// setAllowlisted notes whether a ban of another node was not entered because of Agent.never.
func (t *prefixTable) setAllowlisted(p netip.Prefix, allowlisted bool) {
	t.change(p, func(s *prefixState) { s.allowlisted = allowlisted })
}

// setKept notes whether a ban of another node was not entered beside one of this host.
func (t *prefixTable) setKept(p netip.Prefix, kept bool) {
	t.change(p, func(s *prefixState) { s.kept = kept })
}
