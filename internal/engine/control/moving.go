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

// Observed is the policy that runs, and what was counted for it up to a moment: from two of them follows where its rules
// should be.
type Observed struct {
	Source string // names what the policy was compiled from

	policy     *Compiled // nil when that is not kept, or is of another version
	generation *generation.Generation
	counted    *manifest.Sample
}

// Observe observes the policy that runs, if its rules may move: nil when nothing runs, when its rules stay where they are, or
// while a trial goes on. What an observation before has read of the same policy is not read again; before may be nil.
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

// read reads the policy, and what was counted for it.
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

// Since is the mix of packets from another observation of the same policy to this one, nil when nothing was counted then or
// now. How the packets get about is not in it.
func (o *Observed) Since(then *Observed) *cost.Mix {
	if o.counted == nil || then == nil || then.counted == nil || then.Source != o.Source {
		return nil
	}
	mix := o.counted.Since(then.counted)
	return &mix
}

// Better places the rules for a mix of packets. It is nil when they are where they should be.
func (o *Observed) Better(costs *cost.Model, mix cost.Mix) (*Candidate, error) {
	return candidateFor(o.policy, o.generation.Manifest, costs, mix)
}

// Move moves the rules of an observed policy, as Replace does. It returns ErrChanged when another policy runs by now, or when
// one is on trial.
func (in Instance) Move(ctx context.Context, o *Observed, to *Candidate) (*manifest.Move, error) {
	return in.replace(ctx, o.generation, o.policy, to)
}

// Candidate is a better placement for the rules of what runs.
type Candidate struct {
	plan     *plan.Plan
	now, new cost.Prediction
	rate     float64 // packets that arrive in a second
	must     bool    // where rules are, they may not stay
}

// Saves is what the placement saves, as a share of a CPU.
func (c *Candidate) Saves() float64 { return c.now.CPU - c.new.CPU }

// Costs is what filtering costs now, as a share of a CPU.
func (c *Candidate) Costs() float64 { return c.now.CPU }

// Must reports whether verdicts depend on it: where the rules are now, packets do not come to them as they arrived.
func (c *Candidate) Must() bool { return c.must }

// candidateFor places the rules of what runs for a mix. It is nil when they are where they should be.
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

// reason gives the figures.
func (c *Candidate) reason() string {
	if c.must {
		return "packets have ways round that stage now, or other addresses there"
	}
	return fmt.Sprintf("%.1f ns a packet in place of %.1f, which saves %.1f%% of a CPU at %.0f packets/s",
		c.new.PerPacket, c.now.PerPacket, 100*c.Saves(), c.rate)
}

// moves are the rules that have another stage than in the manifest.
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
