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

// PlacementStatus is how the rules of what runs were placed, and what that costs.
type PlacementStatus struct {
	Mode  string    `json:"mode"`            // the policy's word
	Fixed string    `json:"fixed,omitempty"` // why rules stay where they are, "" when they may move
	Moves bool      `json:"moves"`           // a daemon runs, that moves them
	Since time.Time `json:"since"`           // when rules came to where they are

	Mix       *cost.Mix          `json:"mix,omitempty"`          // the packets since then
	Measured  float64            `json:"measured_ns,omitempty"`  // a packet: the time in softirqs of all CPUs since then, by what has arrived
	Model     *time.Time         `json:"model,omitempty"`        // when the host's costs were measured
	Predicted *cost.Prediction   `json:"predicted,omitempty"`    // of this placement, with the mix
	Others    []plan.Alternative `json:"alternatives,omitempty"` // what others would cost, the cheapest first

	Last []manifest.Move `json:"last_moves"` // the last one last
}

// A cost is said of so much time in softirqs, which the kernel counts in ticks, and of so many packets: what else the host does in
// softirqs is in the time too, and would be most of it beside few packets.
const (
	measurable     = 20 * manifest.Tick
	fewestMeasured = 100_000
)

// Placement reports how the rules of what runs were placed; costs are those of this host, or nil. It returns
// datapath.ErrNotLoaded when nothing runs.
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
	s.Moves = m.Fixed == "" && costs != nil && in.hasDaemon()
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

// observe fills in what was counted.
func (s *PlacementStatus) observe(ctx context.Context, l *generation.Live, g *generation.Generation) error {
	of, err := l.Counts(ctx, g)
	if err != nil {
		return err
	}
	now, err := manifest.Observe(g.Manifest.Devices, of)
	if err != nil {
		return nil // a device has gone, as the status says
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

// predict fills in what this placement and others cost with the mix.
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
