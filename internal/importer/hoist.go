// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// The limits of hoisted: nesting of chains, rules that it adds, and alternatives of one of these.
const (
	maxNested  = 8
	maxHoisted = 256
)

// hoisted moves rules that exempt packets from connection tracking from user chains to the base chains that lead to them, with the conditions of the
// jumps. A rule stays where it is if an earlier rule may keep packets from it. It is then reported there.
func hoisted(rs *saved.Ruleset) {
	for _, t := range rs.Tables {
		h := hoist{table: t, moved: map[*saved.Rule]bool{}, stays: map[*saved.Rule]bool{}}
		bodies := map[*saved.Chain][]saved.Rule{}
		for _, c := range t.Order {
			if c.Hook != saved.HookNone {
				bodies[c] = h.body(c)
			}
		}
		for r := range h.moved {
			r.Notrack = h.stays[r]
		}
		for c, body := range bodies {
			c.Rules = body
		}
	}
}

// hoist is the work on one table. Rules are changed only after all were read, because they are compared with each other.
type hoist struct {
	table        *saved.Table
	moved, stays map[*saved.Rule]bool
	added        int
}

// body returns the rules of a base chain with the moved rules before the jumps that lead to them.
func (h *hoist) body(c *saved.Chain) (out []saved.Rule) {
	for i := range c.Rules {
		for _, n := range h.behind(&c.Rules[i], 0) {
			h.moved[n.from] = true
			out = append(out, saved.Rule{At: n.from.At, Alts: n.alts, Notrack: true})
		}
		out = append(out, c.Rules[i])
	}
	return out
}

// notrack is a rule that exempts packets from connection tracking, with its conditions and those of the jumps to it.
type notrack struct {
	from *saved.Rule
	alts []saved.Cond
}

// behind returns the rules that exempt packets from connection tracking in the chain that q jumps to, with the conditions of q.
func (h *hoist) behind(q *saved.Rule, depth int) (out []notrack) {
	c := h.table.Chains[q.Act.Target]
	if q.Act.Kind != saved.ActJump && q.Act.Kind != saved.ActGoto || c == nil {
		return nil
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		var found []notrack
		if r.Notrack {
			found = append(found, notrack{r, r.Alts})
		}
		if depth < maxNested {
			found = append(found, h.behind(r, depth+1)...)
		}
		spared := len(found) > 0 && slices.ContainsFunc(flowsOf(c, r), func(f saved.Cond) bool { return before(c, r, &f) })
		for _, n := range found {
			if h.added++; spared || depth == maxNested || h.added > maxHoisted || len(q.Alts)*len(n.alts) > maxKept {
				h.stays[n.from] = true
				continue
			}
			out = append(out, notrack{n.from, both(q.Alts, n.alts)})
		}
	}
	return out
}

// both returns the alternatives that hold when one of each list holds.
func both(a, b []saved.Cond) []saved.Cond {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	r := saved.Rule{Alts: a}
	r.Narrow(b)
	return r.Alts
}
