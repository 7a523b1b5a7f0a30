// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// PlacementStatus says where the rules of the running policy were placed, why, and what the placement costs.
type PlacementStatus struct {
	Mode  string    `json:"mode"`            // the placement that the policy asks for
	Fixed string    `json:"fixed,omitempty"` // why rules may not move, "" when they may
	Moves bool      `json:"moves"`           // whether a daemon runs that moves rules
	Since time.Time `json:"since"`           // when the rules came to their present places

	Mix       *cost.Mix          `json:"mix,omitempty"`          // the mix of packets since then
	Measured  float64            `json:"measured_ns,omitempty"`  // time of all CPUs in softirqs since then, divided by the packets that arrived
	Model     *time.Time         `json:"model,omitempty"`        // when the host's costs were measured
	Predicted *cost.Prediction   `json:"predicted,omitempty"`    // the cost of this placement for the mix
	Others    []plan.Alternative `json:"alternatives,omitempty"` // the costs of other placements, the cheapest first

	Last []manifest.Move `json:"last_moves"` // the last moves; the most recent one is the last in the list
}

// A measured cost is reported only if this much time was spent in softirqs, which the kernel counts in ticks, and this many packets have arrived. The
// time includes other work in softirqs. With few packets, most of the time would be such work.
const (
	measurable     = 20 * manifest.Tick
	fewestMeasured = 100_000
)

// Placement reports where the rules of the running policy were placed, and the costs. costs is the cost model of this host, or nil. It returns
// datapath.ErrNotLoaded when no policy runs.
func (in Instance) Placement(ctx context.Context, costs *cost.Model) (s *PlacementStatus, err error) {
	err = in.reading(ctx, func(l *generation.Live) error {
		s, err = in.placement(ctx, l, costs)
		return err
	})
	return s, err
}

func (in Instance) placement(ctx context.Context, l *generation.Live, costs *cost.Model) (*PlacementStatus, error) {
	g := l.Generations[0]
	m := g.Manifest
	s := &PlacementStatus{Mode: cmp.Or(m.Placement, string(ir.PlaceAuto)), Fixed: m.Fixed, Since: m.Applied, Last: m.Moves}
	s.Moves = m.Fixed == "" && costs != nil && in.HasDaemon()
	if s.Last == nil {
		s.Last = []manifest.Move{} // in JSON no list is null
	}
	if n := len(m.Moves); n > 0 {
		s.Since = m.Moves[n-1].Time
	}
	if costs != nil {
		s.Model = &costs.Time
	}
	if m.Since == nil {
		return s, nil
	}
	if err := s.observe(ctx, l, g); err != nil {
		return nil, err
	}
	return s, s.predict(l, g, costs)
}

// observe fills in the counted packets.
func (s *PlacementStatus) observe(ctx context.Context, l *generation.Live, g *generation.Generation) error {
	of, err := l.Counts(ctx, g)
	if err != nil {
		return err
	}
	now, err := manifest.Observe(g.Manifest.Devices, of)
	if err != nil {
		return nil // a device has gone; the status reports that elsewhere
	}
	s.Mix, err = surveyed(ctx, now.Since(g.Manifest.Since), g.Manifest.Devices, 0)
	if err != nil {
		return err
	}
	if spent := now.Softirq - g.Manifest.Since.Softirq; spent >= measurable && s.Mix.Arrived >= fewestMeasured {
		s.Measured = float64(spent) / float64(s.Mix.Arrived)
	}
	return nil
}

// predict fills in the predicted costs of this placement and of alternatives, for the mix.
func (s *PlacementStatus) predict(l *generation.Live, g *generation.Generation, costs *cost.Model) error {
	if costs == nil || s.Mix == nil || s.Mix.Arrived == 0 {
		return nil
	}
	c, err := readSource(l.State, g)
	if c == nil || err != nil {
		return err
	}
	best, err := c.Placed(g.Manifest.Target, costs, *s.Mix)
	if err != nil {
		return err
	}
	now := g.Manifest.Plan(best.Program)
	predicted := now.Predict(costs, *s.Mix)
	s.Predicted = &predicted
	if best.Costs == nil {
		return nil
	}
	if !best.Same(now) {
		s.Others = append(s.Others, plan.Alternative{What: "where they would be now", Predicted: best.Costs.Predicted})
	}
	for _, other := range best.Costs.Others {
		if other.Predicted != predicted {
			s.Others = append(s.Others, other)
		}
	}
	return nil
}
