// SPDX-License-Identifier: Apache-2.0

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
	Text   string     `json:"text"` // in the form of a policy
	Each   bool       `json:"each"` // true: each prefix has its own limit; false: one limit for all packets
	Ban    *BanAction `json:"ban,omitempty"`
	Unused bool       `json:"unused,omitempty"` // no rule uses it; it is kept so that the limits after it keep their numbers
}

// limits stores the limits of a program and the prefixes that are never banned in the manifest.
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

// unusedLimits marks limits as unused if only a protection has used them and a plain rule has replaced the protection.
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

// BanAction describes the ban of a prefix that exceeds a limit.
type BanAction struct {
	Set string        `json:"set"` // the set to which the prefix is added
	For time.Duration `json:"for"`
	V4  int           `json:"v4"` // the length in bits of a banned IPv4 prefix
	V6  int           `json:"v6"`

	Forgeable bool `json:"forgeable,omitempty"` // whether packets with a possibly forged source address count, too
}

// BanningRule returns the name of the first rule with a limit that bans. It returns "" when there is none.
func (m *Manifest) BanningRule() string {
	for _, l := range m.Limits {
		if l.Ban != nil {
			return l.Rule
		}
	}
	return ""
}

// NoteOperators stores the client addresses of the sessions in which the policy was applied. It does so only if the policy bans or has sets that are
// filled while it runs.
func (m *Manifest) NoteOperators(sessions []facts.Session) {
	filled := slices.ContainsFunc(m.Sets, func(s Set) bool { return s.Dynamic >= 0 && !s.Local })
	if m.BanningRule() == "" && len(m.Live) == 0 && !filled {
		return
	}
	m.Operators = facts.Clients(sessions)
}
