package importer

import (
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// Limits of what hoisted follows: chains that lead to each other, rules it adds, and alternatives of one of them.
const (
	maxNested  = 8
	maxHoisted = 256
)

// hoisted puts the rules that take packets out of connection tracking, and that stand in chains which base chains lead to, into
// those base chains, with what the jumps ask. A rule that another one may spare packets from stays where it is, and is reported there.
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

// hoist is the work on one table. Rules change after all are read, as they are compared with each other.
type hoist struct {
	table        *saved.Table
	moved, stays map[*saved.Rule]bool
	added        int
}

// body is the rules of a base chain with those that its jumps lead to.
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

// notrack is a rule that takes packets out of connection tracking, and what it and the jumps to it ask.
type notrack struct {
	from *saved.Rule
	alts []saved.Cond
}

// behind is the rules that take packets out of connection tracking in the chain that q leads to, with what q asks.
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

// both is the alternatives that hold when one of each list does.
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
