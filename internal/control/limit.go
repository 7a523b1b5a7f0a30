package control

import (
	"strings"
)

// LimitStatus is a limit of a rule, and how its table stands.
type LimitStatus struct {
	Rule      string `json:"rule"`
	Limit     string `json:"limit"`              // as a policy has it
	Debts     int    `json:"debts"`              // prefixes that have used a part of what they may send
	Capacity  int    `json:"capacity,omitempty"` // in such prefixes; absent: the limit is one for all
	Evictions uint64 `json:"evictions"`          // prefixes that were forgotten for lack of space
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
