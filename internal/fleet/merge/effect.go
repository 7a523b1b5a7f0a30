package merge

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
// entered those without the fleet. It takes as many origins as reporters to ban a prefix, or the controller alone: the ban ends
// when fewer are left.
func (r Record) Effect(now time.Time, self string, reporters int) (Effect, bool) {
	var longest []*Statement // of each origin
	for i := range r.Statements {
		s := &r.Statements[i]
		if s.Lift() || s.Until <= now.UnixMilli() || s.Origin == self {
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

// Lifted tells when the last lift by an origin, or by the controller, was said. It is the zero time when there was none.
func (r Record) Lifted(origin string) (at time.Time) {
	for i := range r.Statements {
		if s := &r.Statements[i]; s.Lift() && (s.Origin == Controller || s.Origin == origin) && Time(s.Seq).After(at) {
			at = Time(s.Seq)
		}
	}
	return at
}
