// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Observed is the running policy with its counts at one moment. From two observations the best places of the policy's rules can be computed.
type Observed struct {
	Source string // names the stored source of the policy

	policy     *Compiled // nil when the source is not stored, or was stored by another version
	generation *generation.Generation
	counted    *manifest.Sample
}

// Observe observes the running policy. It returns nil when no policy runs, when the policy's rules may not move, or during a trial. `before` is an
// earlier observation, or nil. If before is of the same policy, Observe does not read the policy's source again.
func (in Instance) Observe(ctx context.Context, before *Observed) (o *Observed, err error) {
	err = in.reading(ctx, func(l *generation.Live) error {
		g := l.Generations[0]
		if l.Trial != nil || len(l.Generations) > 1 || g.Manifest.Stays() != "" {
			return nil
		}
		o = &Observed{Source: g.Manifest.Source, generation: g}
		return o.read(ctx, l, before)
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, nil
	}
	return o, err
}

// read reads the source and the counts of the policy.
func (o *Observed) read(ctx context.Context, l *generation.Live, before *Observed) (err error) {
	if before != nil && before.Source == o.Source {
		o.policy = before.policy
	} else if o.policy, err = readSource(l.State, o.generation); err != nil {
		return err
	}
	if o.policy == nil {
		return nil
	}
	of, err := l.Counts(ctx, o.generation)
	if err != nil {
		return err
	}
	o.counted, err = manifest.Observe(o.Devices(), of)
	return err
}

// Devices are the names of the policy's devices.
func (o *Observed) Devices() []string { return o.generation.Manifest.Devices }

// Since returns the mix of packets between then, an earlier observation of the same policy, and o. It returns nil when one of them has no counts. The
// mix lacks the paths of the packets.
func (o *Observed) Since(then *Observed) *cost.Mix {
	if o.counted == nil || then == nil || then.counted == nil || then.Source != o.Source {
		return nil
	}
	mix := o.counted.Since(then.counted)
	return &mix
}

// Better returns the best placement of the rules for a mix of packets. It returns nil when the rules are already in the best places.
func (o *Observed) Better(costs *cost.Model, mix cost.Mix) (*Candidate, error) {
	return candidateFor(o.policy, o.generation.Manifest, costs, mix)
}

// Move moves the rules of an observed policy, in the same way as Replace. It returns ErrChanged when another policy runs by now, or when one is on
// trial.
func (in Instance) Move(ctx context.Context, o *Observed, to *Candidate) (*manifest.Move, error) {
	return in.replace(ctx, o.generation, o.policy, to)
}

// Candidate is a better placement for the rules of the policy that runs.
type Candidate struct {
	plan     *plan.Plan
	now, new cost.Prediction
	rate     float64 // packets that arrive per second
	must     bool    // whether correct verdicts require the move
}

// Saves returns the CPU time that the placement saves, as a share of one CPU.
func (c *Candidate) Saves() float64 { return c.now.CPU - c.new.CPU }

// Costs returns the CPU time that filtering costs now, as a share of one CPU.
func (c *Candidate) Costs() float64 { return c.now.CPU }

// Must reports whether correct verdicts require the move. In their present places some rules do not see packets in the form in which they arrived.
func (c *Candidate) Must() bool { return c.must }

// candidateFor returns the best placement of the running policy's rules for a mix. It returns nil when the rules are already in the best places.
func candidateFor(c *Compiled, m *manifest.Manifest, costs *cost.Model, mix cost.Mix) (*Candidate, error) {
	plan, err := c.Placed(m.Target, costs, mix)
	if err != nil {
		return nil, err
	}
	now := m.Plan(plan.Program)
	if plan.Same(now) {
		return nil, nil
	}
	rate := float64(mix.Arrived) / max(mix.Seconds, 0.001)
	return &Candidate{plan, now.Predict(costs, mix), plan.Predict(costs, mix), rate, !plan.Permits(now)}, nil
}

// reason returns the reason of the move, with the measured and predicted figures.
func (c *Candidate) reason() string {
	if c.must {
		return "packets have ways round that stage now, or other addresses there"
	}
	return fmt.Sprintf("%.1f ns a packet in place of %.1f, which saves %.1f%% of a CPU at %.0f packets/s",
		c.new.PerPacket, c.now.PerPacket, 100*c.Saves(), c.rate)
}

// moves returns the rules whose stage differs from the manifest.
func (c *Candidate) moves(m *manifest.Manifest) (list []manifest.RuleMove) {
	for i, r := range m.Rules {
		if to := c.plan.Rules[i].Stage; to != r.Stage {
			list = append(list, manifest.RuleMove{Name: r.Name, From: r.Stage, To: to})
		}
	}
	if m.At.Stage != c.plan.Default.Stage && m.Default != ir.Pass.String() {
		list = append(list, manifest.RuleMove{Name: "default", From: m.At.Stage, To: c.plan.Default.Stage})
	}
	return list
}
