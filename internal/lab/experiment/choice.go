package experiment

import (
	"fmt"
	"math"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// chooser is Floodwall's automatic placement of the rule, as it works with the costs of this host.
type chooser struct {
	model  *cost.Model
	policy *control.Compiled
}

func newChooser(m *cost.Model) (*chooser, error) {
	text := "devices: [any]\n" + strings.Replace(placementPolicy, "%s", "auto", 1)
	c, err := control.CompileSource("placement", []byte(text))
	if err != nil {
		return nil, err
	}
	return &chooser{m, c}, nil
}

// ruleName is the rule's.
const ruleName = "flood"

// choose is the stage of the rule for packets of which so many were dropped by it, and all others forwarded.
func (c *chooser) choose(t plan.Target, arrived, dropped uint64) (plan.Stage, error) {
	mix := cost.Mix{
		Seconds: float64(arrived) / articleRate, Arrived: arrived, Forwarded: arrived - dropped, Rules: map[string]uint64{ruleName: dropped},
	}
	plan, err := c.policy.Placed(t, c.model, mix)
	if err != nil {
		return "", err
	}
	for i, r := range plan.Program.Rules {
		if r.Name == ruleName {
			return plan.Rules[i].Stage, nil
		}
	}
	return "", fmt.Errorf("the plan has no rule %q", ruleName)
}

// above is how many times a probe's cost is that of the cheapest of these, in the middle of the rounds; 1 when it is the
// cheapest itself.
func above(p *rig.Probe, others ...*rig.Probe) float64 {
	most := 1.0
	for _, o := range others {
		most = max(most, p.Costs.By(o.Costs).Median())
	}
	return most
}

// crossing is the share from which on the one costs less than the other, with the probes of each share. A cost is a
// straight line over the share: what a dropped packet costs and what another one does, each as often as there are such. So
// is the difference, of which this is where the line of the least squares is 0; NaN when that is not between 0 and 1.
func crossing(shares []float64, one, other []*rig.Probe) float64 {
	var n, x, y, xx, xy float64
	for i, share := range shares {
		d := one[i].Costs.Minus(other[i].Costs).Median()
		n, x, y, xx, xy = n+1, x+share, y+d, xx+share*share, xy+share*d
	}
	slope := (n*xy - x*y) / (n*xx - x*x)
	at := -(y - slope*x) / n / slope
	if !(at > 0 && at < 1) {
		return math.NaN()
	}
	return at
}
