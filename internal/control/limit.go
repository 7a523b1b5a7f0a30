package control

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/ir"
)

// limitEntry is a limit of a rule.
type limitEntry struct {
	Rule   string     `json:"rule"`
	Text   string     `json:"text"` // as a policy has it
	Each   bool       `json:"each"` // for each of many prefixes; else it is one for all
	Ban    *BanAction `json:"ban,omitempty"`
	Unused bool       `json:"unused,omitempty"` // nothing asks it; it keeps the numbers of those after it
}

// limits notes the limits of a program, and who is spared when they ban.
func (m *manifest) limits(p *ir.Program) {
	for i := range p.Limits {
		l := &p.Limits[i]
		m.Limits = append(m.Limits, limitEntry{Rule: l.Rule, Text: p.LimitText(i), Each: l.Src != nil || l.Dst != nil})
	}
	m.unusedLimits(p)
	for i := range p.Rules {
		if !p.Bans(&p.Rules[i]) {
			continue
		}
		for _, number := range p.Rules[i].Over {
			if l := &p.Limits[number]; l.Ban != nil {
				m.Limits[number].Ban = &BanAction{Set: p.Sets[l.Ban.Set].Name, For: l.Ban.For, V4: l.Src.V4, V6: l.Src.V6, Forgeable: l.Ban.Forgeable}
			}
		}
	}
	if p.Never != nil && m.banningRule() != "" {
		m.Never = slices.Collect(p.Never.Prefixes())
	}
}

// unusedLimits notes what only a protection asks that has fallen back to a rule.
func (m *manifest) unusedLimits(p *ir.Program) {
	used := map[int]bool{}
	for _, r := range p.Rules {
		for _, i := range r.Over {
			used[i] = true
		}
		if r.Protect > 0 {
			s := &p.Protections[r.Protect-1]
			for _, i := range append([]int{s.Start, s.Stop}, s.Limits...) {
				used[i] = true
			}
		}
	}
	for i := range p.Protections {
		s := &p.Protections[i]
		for _, number := range append([]int{s.Start, s.Stop}, s.Limits...) {
			if number >= 0 {
				m.Limits[number].Unused = !used[number]
			}
		}
	}
}

// LimitStatus is a limit of a rule, and how its table stands.
type LimitStatus struct {
	Rule      string `json:"rule"`
	Limit     string `json:"limit"`              // as a policy has it
	Debts     int    `json:"debts"`              // prefixes that have used a part of what they may send
	Capacity  int    `json:"capacity,omitempty"` // in such prefixes; absent: the limit is one for all
	Evictions uint64 `json:"evictions"`          // prefixes that were forgotten for want of room
}

// limits reports how the tables of limits in XDP stand. What netfilter keeps of its own is not counted.
func (s *Status) limits(g *generation) error {
	if g.program == nil || len(g.manifest.Limits) == 0 {
		return nil
	}
	tables, err := g.program.Limits()
	if err != nil {
		return err
	}
	for i, t := range tables[:min(len(tables), len(g.manifest.Limits))] {
		e := g.manifest.Limits[i]
		if e.Unused || strings.HasPrefix(e.Rule, "essential:") && t.Evictions == 0 {
			continue // built-in limits are known by the packets that they drop
		}
		if !e.Each {
			t.Capacity = 0
		}
		s.Limits = append(s.Limits, LimitStatus{e.Rule, e.Text, t.Debts, t.Capacity, t.Evictions})
		if t.Debts*10 >= t.Capacity*9 && e.Each {
			s.warn("the limit of rule %q is %d%% full: a flood from many sources makes it forget some of them; give it a larger max",
				e.Rule, t.Debts*100/t.Capacity)
		}
	}
	return nil
}
