package manifest

import (
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Limit is a limit of a rule.
type Limit struct {
	Rule   string     `json:"rule"`
	Text   string     `json:"text"` // as a policy has it
	Each   bool       `json:"each"` // for each of many prefixes; else it is one for all
	Ban    *BanAction `json:"ban,omitempty"`
	Unused bool       `json:"unused,omitempty"` // nothing asks it; it keeps the numbers of those after it
}

// limits notes the limits of a program, and who is spared when they ban.
func (m *Manifest) limits(p *ir.Program) {
	for i := range p.Limits {
		l := &p.Limits[i]
		m.Limits = append(m.Limits, Limit{Rule: l.Rule, Text: p.LimitText(i), Each: l.Src != nil || l.Dst != nil})
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
	if p.Never != nil && (m.BanningRule() != "" || slices.ContainsFunc(p.Sets, func(s ir.Set) bool { return s.Live || s.Dynamic != nil && !s.Dynamic.Local })) {
		m.Never = slices.Collect(p.Never.Prefixes())
	}
}

// unusedLimits notes what only a protection asks that has fallen back to a rule.
func (m *Manifest) unusedLimits(p *ir.Program) {
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

// BanAction says what becomes of prefixes that exceed a limit.
type BanAction struct {
	Set string        `json:"set"` // that they are entered into
	For time.Duration `json:"for"`
	V4  int           `json:"v4"` // the lengths of the prefixes
	V6  int           `json:"v6"`

	Forgeable bool `json:"forgeable,omitempty"` // packets count that prove no address
}

// BanningRule is the first rule with a limit that bans, "" when there is none.
func (m *Manifest) BanningRule() string {
	for _, l := range m.Limits {
		if l.Ban != nil {
			return l.Rule
		}
	}
	return ""
}

// NoteOperators notes who applied a policy that bans, or that has sets whose entries it does not name.
func (m *Manifest) NoteOperators(sessions []facts.Session) {
	filled := slices.ContainsFunc(m.Sets, func(s Set) bool { return s.Dynamic >= 0 && !s.Local })
	if m.BanningRule() == "" && len(m.Live) == 0 && !filled {
		return
	}
	m.Operators = facts.Clients(sessions)
}
