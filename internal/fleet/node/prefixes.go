// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// prefixState is an agent's state of one prefix, in addition to the record of the hub. Its zero value is the empty state.
type prefixState struct {
	own         *ownBan         // the ban of this host; nil: none
	lift        *wire.Statement // a lift by this node that must still be sent; nil: none
	until       time.Time       // end of the entered ban by this host's monotonic clock; zero: the enforcer must still end it
	undone      int             // number of bans that this agent ended itself, and whose ends the log of bans has not reported yet
	entered     bool            // this host has a ban of another node
	pending     bool            // `own` must still be offered to a hub
	owed        bool            // the ban was lifted, but the enforcer could not end it yet
	allowlisted bool            // a ban of another node was not entered because of Agent.never
	kept        bool            // a ban of another node was not entered because this host has its own ban
}

// prefixTable contains the states of all prefixes. Only its method change writes states, and the sets that are derived from them.
type prefixTable struct {
	states  map[netip.Prefix]prefixState // non-empty states
	entered int                          // number of prefixes with `entered`
	own     prefixSet                    // prefixes with an own ban
	pending prefixSet                    // prefixes whose own ban must still be offered
	lifts   prefixSet                    // prefixes whose lift must still be offered
	kept    prefixSet                    // prefixes with `kept`
	dirty   prefixSet                    // the queue of prefixes to compare with their records
}

type prefixSet map[netip.Prefix]struct{}

func newPrefixTable() prefixTable {
	return prefixTable{states: map[netip.Prefix]prefixState{}, own: prefixSet{}, pending: prefixSet{}, lifts: prefixSet{}, kept: prefixSet{}, dirty: prefixSet{}}
}

func (s prefixSet) add(p netip.Prefix) { s[p] = struct{}{} }

// put adds a prefix if in is true, and otherwise removes the prefix.
func (s prefixSet) put(p netip.Prefix, in bool) {
	if in {
		s.add(p)
	} else {
		delete(s, p)
	}
}

// of returns the state of a prefix.
func (t *prefixTable) of(p netip.Prefix) prefixState { return t.states[p] }

// change changes the state of a prefix by the function by. It deletes a state that has become empty.
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

// enter records that this host has a ban of another node. If the end is zero, the enforcer must still end the ban.
func (t *prefixTable) enter(p netip.Prefix, until time.Time) {
	t.change(p, func(s *prefixState) { s.entered, s.until = true, until })
}

// leave records that this host has no ban of another node.
func (t *prefixTable) leave(p netip.Prefix) {
	t.change(p, func(s *prefixState) { s.entered, s.until = false, time.Time{} })
}

// setOwn records a ban of this host, which must then be offered. If b is nil, this host has no ban.
func (t *prefixTable) setOwn(p netip.Prefix, b *ownBan) {
	t.change(p, func(s *prefixState) { s.own, s.pending = b, b != nil && wire.Shared(p) })
}

// offerOwn marks an own ban to be offered. It does not if nodes must not ban prefixes of this length: such a ban applies only to this host.
func (t *prefixTable) offerOwn(p netip.Prefix) {
	t.change(p, func(s *prefixState) { s.pending = s.own != nil && wire.Shared(p) })
}

// offerLift marks a lift by this node to be offered.
func (t *prefixTable) offerLift(p netip.Prefix, lift wire.Statement) {
	t.change(p, func(s *prefixState) { s.lift = &lift })
}

// decided records that the hub has decided on a statement of this node. It reports whether the statement was still pending.
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

// setOwed records whether the enforcer must still end a lifted ban.
func (t *prefixTable) setOwed(p netip.Prefix, owed bool) {
	t.change(p, func(s *prefixState) { s.owed = owed })
}

// undo records that this agent ends a ban itself. The log of bans will report it.
func (t *prefixTable) undo(p netip.Prefix) {
	t.change(p, func(s *prefixState) { s.undone++ })
}

// undoneTold reverses one call of undo, because the log of bans has reported the end or there was no ban. It reports whether there was such a call.
func (t *prefixTable) undoneTold(p netip.Prefix) (was bool) {
	t.change(p, func(s *prefixState) {
		if was = s.undone > 0; was {
			s.undone--
		}
	})
	return was
}

// setAllowlisted records whether a ban of another node was not entered because of Agent.never.
func (t *prefixTable) setAllowlisted(p netip.Prefix, allowlisted bool) {
	t.change(p, func(s *prefixState) { s.allowlisted = allowlisted })
}

// setKept records whether a ban of another node was not entered because this host has its own ban.
func (t *prefixTable) setKept(p netip.Prefix, kept bool) {
	t.change(p, func(s *prefixState) { s.kept = kept })
}
