// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Controller is the origin of statements signed by a controller key. No node can have this name.
const Controller = "@"

// Statement is a statement of one origin about a prefix: either the prefix is banned until a time, or it is no longer banned.
type Statement struct {
	Origin string // the name of a node, or Controller

	// Seq orders statements. It is the time of the statement in microseconds since 1970, UTC, by the corrected clock of the
	// origin. Two statements of one origin never have the same number.
	Seq uint64

	Until  int64  // end of the ban in milliseconds since 1970, UTC; 0 for a lift
	Reason string // at most MaxReason bytes
	Sig    []byte // the controller's signature; nil for nodes
}

// Lift reports whether the statement ends bans.
func (s *Statement) Lift() bool { return s.Until == 0 }

// beats reports whether s voids o. A lift beats earlier statements of its origin, and a lift by the controller beats earlier statements of all
// origins. Of two bans by one origin, the later one beats the other if it has a later end. When two bans differ only in their text, the function
// order decides, so that only one beats the other.
func (s *Statement) beats(o *Statement) bool {
	switch {
	case s.Seq < o.Seq:
		return false
	case s.Origin == o.Origin && s.Seq == o.Seq && s.Until == o.Until:
		return order(*s, *o) > 0
	case s.Lift():
		return s.Origin == o.Origin || s.Origin == Controller
	}
	return s.Origin == o.Origin && !o.Lift() && s.Until >= o.Until
}

// MaxReason is the greatest length of a reason, in bytes. It is the limit of the kernel's set.
const MaxReason = 64

// Record is all valid statements about a prefix, ordered by origin and number. A Record is immutable.
type Record struct {
	Prefix     netip.Prefix
	Statements []Statement
}

// Merge merges two records of the same prefix.
func Merge(a, b Record) Record {
	all := slices.Concat(a.Statements, b.Statements)
	slices.SortFunc(all, order)
	all = slices.CompactFunc(all, func(x, y Statement) bool { return order(x, y) == 0 })
	kept := make([]Statement, 0, len(all))
	for i := range all {
		if !slices.ContainsFunc(all, func(s Statement) bool { return order(s, all[i]) != 0 && s.beats(&all[i]) }) {
			kept = append(kept, all[i])
		}
	}
	return Record{a.Prefix, kept}
}

// order compares two statements by a total order. Statements that compare as equal differ in nothing that matters.
func order(a, b Statement) int {
	return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Until, b.Until), cmp.Compare(a.Reason, b.Reason),
		slices.Compare(a.Sig, b.Sig))
}

// Without returns the record without statements that are void at a time: bans that have ended, and lifts that are older than any ban that they could
// beat.
func (r Record) Without(now time.Time) Record {
	gone := func(s Statement) bool {
		if s.Lift() {
			return SequenceTime(s.Seq).Add(Longest + time.Minute).Before(now)
		}
		return s.Until <= now.UnixMilli()
	}
	if !slices.ContainsFunc(r.Statements, gone) {
		return r
	}
	return Record{r.Prefix, slices.DeleteFunc(slices.Clone(r.Statements), gone)}
}

// Equal reports whether two records have the same statements.
func (r Record) Equal(o Record) bool {
	return r.Prefix == o.Prefix && slices.EqualFunc(r.Statements, o.Statements, func(a, b Statement) bool { return order(a, b) == 0 })
}

// SequenceTime returns the time of a statement with a number.
func SequenceTime(seq uint64) time.Time { return time.UnixMicro(int64(seq)) }

// NextSequence returns the number of a statement at a time. The number is greater than last.
func NextSequence(now time.Time, last uint64) uint64 {
	return max(uint64(max(now.UnixMicro(), 0)), last+1)
}
