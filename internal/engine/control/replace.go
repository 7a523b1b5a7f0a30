// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// ErrChanged says that the policy for which a change was made no longer runs, or that a policy is on trial.
var ErrChanged = errors.New("what runs has changed meanwhile, or is on trial")

// Replace moves the rules of the running policy to the best places for a mix of packets. It compiles the policy again from its stored source, in one
// transaction. Counters and bans stay, and Rollback still returns to the policy before this one. Replace returns nil when all rules are already in
// the best places. It returns an error for a policy that was applied without a cost model, for a policy with limits, because their state would be
// lost, and during a trial. If it fails, nothing has changed.
func (in Instance) Replace(ctx context.Context, costs *cost.Model, mix cost.Mix) (*manifest.Move, error) {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	g := l.Generations[0]
	if why := g.Manifest.Stays(); why != "" {
		return nil, fmt.Errorf("rules stay where they are: %s", why)
	}
	c, err := readSource(l.State, g)
	if err == nil && c == nil {
		err = errors.New("what it was compiled from is not kept; apply the policy again")
	}
	if err != nil {
		return nil, err
	}
	p, err := candidateFor(c, g.Manifest, costs, mix)
	if p == nil || err != nil {
		return nil, err
	}
	return in.replace(ctx, g, c, p)
}

// replace applies a candidate to the generation g, if g still runs.
func (in Instance) replace(ctx context.Context, g *generation.Generation, c *Compiled, p *Candidate) (*manifest.Move, error) {
	m := &manifest.Move{Time: time.Now().UTC(), Rules: p.moves(g.Manifest), Saves: p.Saves(), Reason: p.reason()}
	err := in.locked(ctx, func(state *datapath.State) error {
		_, err := in.applying(state, transaction{
			compiled: c, target: p.plan.Target, choice: g.Manifest.Choice, move: m, of: g, stages: p.plan,
			options: ApplyOptions{Devices: g.Manifest.Devices, Boot: g.Manifest.Boot, Origin: g.Manifest.Origin},
		}).apply(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}
