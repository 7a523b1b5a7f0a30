package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/plan"
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

// ErrChanged says that another policy runs than the one that was to be placed anew, or that one is on trial.
var ErrChanged = errors.New("what runs has changed meanwhile, or is on trial")

// Replace places the rules of what runs anew, for the packets of a mix. It is the same policy, compiled again from what is
// kept of it, in one transaction: with its counters and bans, and Rollback returns to the policy before it. It returns nil
// when all rules are where they should be. A policy that was applied without a cost model, or with limits, which would begin
// anew, is an error, and so is one on trial. When it fails, all is as it was.
func (in Instance) Replace(ctx context.Context, costs *cost.Model, mix cost.Mix) (*Move, error) {
	l, err := in.open(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	g := l.generations[0]
	if why := g.manifest.Fixed; why != "" {
		return nil, fmt.Errorf("rules stay where they are: %s", why)
	}
	c, err := readSource(l.state, g)
	if err == nil && c == nil {
		err = errors.New("what it was compiled from is not kept; apply the policy again")
	}
	if err != nil {
		return nil, err
	}
	p, err := candidateFor(c, g.manifest, costs, mix)
	if p == nil || err != nil {
		return nil, err
	}
	return in.replace(ctx, g, c, p)
}

// replace makes a candidate real for a generation, if that still runs.
func (in Instance) replace(ctx context.Context, g *generation, c *Compiled, p *Candidate) (*Move, error) {
	m := &Move{Time: time.Now().UTC(), Rules: p.moves(g.manifest), Saves: p.Saves(), Reason: p.reason()}
	err := in.locked(ctx, func(state *datapath.State) error {
		_, err := request{
			in: in, compiled: c, target: p.plan.Target, choice: g.manifest.Choice, move: m, of: g, stages: p.plan,
			options: ApplyOptions{Devices: g.manifest.Devices, Boot: g.manifest.Boot},
		}.transact(ctx, state)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// again has the manifest of a policy that runs already say since when, and what became of its rules.
func (m *manifest) again(before *manifest, move *Move) {
	m.Applied, m.Source, m.Fixed = before.Applied, before.Source, before.Fixed
	m.Moves = append(before.Moves[max(0, len(before.Moves)-mostMovesKept+1):len(before.Moves):len(before.Moves)], *move)
}

// mostMovesKept is how many moves status shows.
const mostMovesKept = 10
