// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Move is a change of the stages of rules while the policy runs.
type Move struct {
	Time   time.Time  `json:"time"`
	Rules  []RuleMove `json:"rules"`
	Saves  float64    `json:"saves"`  // predicted saving, as a share of one CPU
	Reason string     `json:"reason"` // the reason, with the figures
}

// RuleMove is the change of stage of one rule, or of the default.
type RuleMove struct {
	Name string     `json:"name"`
	From plan.Stage `json:"from"`
	To   plan.Stage `json:"to"`
}

// mostNamed is the largest number of rules that the text of a move names.
const mostNamed = 3

// String returns the rules that move, their stages, and the reason.
func (m *Move) String() string {
	var words []string
	for i, r := range m.Rules {
		if i == mostNamed {
			words = append(words, fmt.Sprintf("and %d more", len(m.Rules)-mostNamed))
			break
		}
		words = append(words, fmt.Sprintf("%s from %s to %s", r.Name, r.From, r.To))
	}
	return strings.Join(words, ", ") + ": " + m.Reason
}

// Again copies data about the apply of the running policy from its manifest before, and adds a move. The data are the time, the source and the live
// sets.
func (m *Manifest) Again(before *Manifest, move *Move) {
	m.Applied, m.Source, m.Fixed, m.Live = before.Applied, before.Source, before.Fixed, before.Live
	m.Moves = append(before.Moves[max(0, len(before.Moves)-mostMovesKept+1):len(before.Moves):len(before.Moves)], *move)
}

// Stays returns the reason why the rules may not move at present. It returns "" when they may move.
func (m *Manifest) Stays() string {
	if m.Fixed == "" && len(m.Temporary) > 0 {
		return "there are temporary rules"
	}
	return m.Fixed
}

// mostMovesKept is the number of moves that the manifest keeps and status shows.
const mostMovesKept = 10

// Plan returns the plan from which the manifest was made, for a program without temporary rules.
func (m *Manifest) Plan(p *ir.Program) *plan.Plan {
	pl := &plan.Plan{Target: m.Target, Program: p, Default: m.At}
	for _, r := range m.Rules {
		if r.Temporary {
			break
		}
		pl.Rules = append(pl.Rules, plan.Assignment{Stage: r.Stage, Also: r.Also, Why: r.Why})
	}
	return pl
}
