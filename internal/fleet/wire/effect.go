package wire

import (
	"cmp"
	"slices"
	"time"
)

// Effect is a ban that holds.
type Effect struct {
	Until  time.Time
	Origin string // of the statement with the latest end
	Reason string
}

// Effect tells until when a node is to drop the prefix, and false when it is not. Statements of the node itself do not count: it has
// entered those without the fleet. A lift by the node itself makes all earlier statements void at this node. It takes as many origins
// as reporters to ban a prefix, or the controller alone: the ban ends when fewer are left.
func (r Record) Effect(now time.Time, self string, reporters int) (Effect, bool) {
	var longest []*Statement // of each origin
	lifted := r.LiftedBy(self)
	for i := range r.Statements {
		s := &r.Statements[i]
		if s.Lift() || s.Until <= now.UnixMilli() || s.Origin == self || s.Seq <= lifted {
			continue
		}
		at := slices.IndexFunc(longest, func(o *Statement) bool { return o.Origin == s.Origin })
		switch {
		case at < 0:
			longest = append(longest, s)
		case s.Until > longest[at].Until:
			longest[at] = s
		}
	}
	slices.SortFunc(longest, func(a, b *Statement) int {
		return cmp.Or(cmp.Compare(b.Until, a.Until), cmp.Compare(a.Origin, b.Origin))
	})
	until := int64(0)
	if n := max(reporters, 1); len(longest) >= n {
		until = longest[n-1].Until
	}
	for _, s := range longest {
		if s.Origin == Controller {
			until = max(until, s.Until)
		}
	}
	if until == 0 {
		return Effect{}, false
	}
	return Effect{time.UnixMilli(until), longest[0].Origin, longest[0].Reason}, true
}

// Lifted tells whether a statement of that number by an origin was lifted, by the origin or by the controller.
func (r Record) Lifted(origin string, seq uint64) bool {
	return seq <= max(r.LiftedBy(origin), r.LiftedBy(Controller))
}

// LiftedBy is the number of the last lift by an origin, 0 when there is none.
func (r Record) LiftedBy(origin string) (seq uint64) {
	for i := range r.Statements {
		if s := &r.Statements[i]; s.Lift() && s.Origin == origin {
			seq = max(seq, s.Seq)
		}
	}
	return seq
}

// Last is the number of the last statement of an origin, 0 when there is none.
func (r Record) Last(origin string) (seq uint64) {
	for i := range r.Statements {
		if r.Statements[i].Origin == origin {
			seq = max(seq, r.Statements[i].Seq)
		}
	}
	return seq
}

// Has tells whether a statement, or one of the same origin that beats it, is in the record.
func (r Record) Has(s *Statement) bool {
	for i := range r.Statements {
		if o := &r.Statements[i]; o.Origin == s.Origin && (o.Seq == s.Seq || o.beats(s)) {
			return true
		}
	}
	return false
}

// Holds tells whether exactly this statement is in the record, with its signature.
func (r Record) Holds(s *Statement) bool {
	return slices.ContainsFunc(r.Statements, func(o Statement) bool { return order(o, *s) == 0 })
}
