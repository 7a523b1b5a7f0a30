package manifest

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Move is a change of stages of the policy that runs.
type Move struct {
	Time   time.Time  `json:"time"`
	Rules  []RuleMove `json:"rules"`
	Saves  float64    `json:"saves"`  // of a CPU, as predicted
	Reason string     `json:"reason"` // with the figures
}

// RuleMove is a rule, or the default, that has another stage.
type RuleMove struct {
	Name string     `json:"name"`
	From plan.Stage `json:"from"`
	To   plan.Stage `json:"to"`
}

// mostNamed is how many rules a line about a move names.
const mostNamed = 3

// String says which rules move where, and why.
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

// Again has the manifest of a policy that runs already say since when, and what became of its rules.
func (m *Manifest) Again(before *Manifest, move *Move) {
	m.Applied, m.Source, m.Fixed, m.Live = before.Applied, before.Source, before.Fixed, before.Live
	m.Moves = append(before.Moves[max(0, len(before.Moves)-mostMovesKept+1):len(before.Moves):len(before.Moves)], *move)
}

// Stays says why the rules stay where they are for now, "" when they may move.
func (m *Manifest) Stays() string {
	if m.Fixed == "" && len(m.Temporary) > 0 {
		return "there are temporary rules"
	}
	return m.Fixed
}

// mostMovesKept is how many moves status shows.
const mostMovesKept = 10

// Plan is the plan that the manifest is of, for a program without temporary rules.
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
