package wire

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Controller is the origin of statements that a controller key has signed. No node can have this name.
const Controller = "@"

// Statement is what one origin says of a prefix: that it is banned until a time, or that it no longer is.
type Statement struct {
	Origin string // the name of a node, or Controller

	// Seq orders statements. It is the time of the statement in microseconds since 1970, UTC, by the corrected clock of the
	// origin. Two statements of one origin never have the same number.
	Seq uint64

	Until  int64  // end of the ban in milliseconds since 1970, UTC; 0 for a lift
	Reason string // at most MaxReason bytes
	Sig    []byte // the controller's signature; nil for nodes
}

// Lift tells whether the statement ends bans.
func (s *Statement) Lift() bool { return s.Until == 0 }

// beats tells whether s makes o void. A lift beats the earlier statements of its origin, and one of the controller beats those of
// all. Among bans of one origin, a later one with a later end beats the others. Of two that differ in their text alone, order decides:
// only one may beat the other.
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

// MaxReason is how long a reason is, in bytes: as many as the kernel's set keeps.
const MaxReason = 64

// Record is all that was said of a prefix and still counts, ordered by origin and number. A Record is never changed.
type Record struct {
	Prefix     netip.Prefix
	Statements []Statement
}

// Merge joins what two records say of the same prefix.
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

// order is a total order. Equal statements differ in nothing that counts.
func order(a, b Statement) int {
	return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Until, b.Until), cmp.Compare(a.Reason, b.Reason),
		slices.Compare(a.Sig, b.Sig))
}

// Without leaves out what no longer counts at a time: bans that have ended, and lifts that are older than any ban that they beat.
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

// Equal tells whether two records say the same.
func (r Record) Equal(o Record) bool {
	return r.Prefix == o.Prefix && slices.EqualFunc(r.Statements, o.Statements, func(a, b Statement) bool { return order(a, b) == 0 })
}

// SequenceTime is the time that a number stands for.
func SequenceTime(seq uint64) time.Time { return time.UnixMicro(int64(seq)) }

// NextSequence is the number of a statement at a time that comes after the one numbered last.
func NextSequence(now time.Time, last uint64) uint64 {
	return max(uint64(max(now.UnixMicro(), 0)), last+1)
}
