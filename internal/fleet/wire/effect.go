// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"slices"
	"time"
)

// Effect is a ban in force.
type Effect struct {
	Until  time.Time
	Origin string // origin of the statement with the latest end
	Reason string
}

// Effect returns the ban by which a node must drop the prefix; false when there is none. Statements of the node itself do not count, because the node
// enters its own bans without the fleet. A lift by the node itself voids all earlier statements, but only at this node. A ban is in force if at least
// `reporters` origins ban the prefix, or the controller alone does. It ends when fewer origins are left.
func (r Record) Effect(now time.Time, self string, reporters int) (Effect, bool) {
	var longest []*Statement // the ban with the latest end, of each origin
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

// Lifted reports whether an origin's statement with that number was lifted, by the origin or by the controller.
func (r Record) Lifted(origin string, seq uint64) bool {
	return seq <= max(r.LiftedBy(origin), r.LiftedBy(Controller))
}

// LiftedBy returns the number of an origin's last lift, 0 when there is none.
func (r Record) LiftedBy(origin string) (seq uint64) {
	for i := range r.Statements {
		if s := &r.Statements[i]; s.Lift() && s.Origin == origin {
			seq = max(seq, s.Seq)
		}
	}
	return seq
}

// Last returns the number of an origin's last statement, 0 when there is none.
func (r Record) Last(origin string) (seq uint64) {
	for i := range r.Statements {
		if r.Statements[i].Origin == origin {
			seq = max(seq, r.Statements[i].Seq)
		}
	}
	return seq
}

// Has reports whether the record has a statement, or another statement of the same origin that beats it.
func (r Record) Has(s *Statement) bool {
	for i := range r.Statements {
		if o := &r.Statements[i]; o.Origin == s.Origin && (o.Seq == s.Seq || o.beats(s)) {
			return true
		}
	}
	return false
}

// Holds reports whether the record has exactly this statement, with its signature.
func (r Record) Holds(s *Statement) bool {
	return slices.ContainsFunc(r.Statements, func(o Statement) bool { return order(o, *s) == 0 })
}
