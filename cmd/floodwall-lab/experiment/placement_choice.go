package experiment

import (
	"fmt"
	"math"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// automaticPolicy returns the policy whose rule is placed automatically.
func automaticPolicy() (*control.Compiled, error) {
	return control.CompileSource("placement", []byte("devices: [any]\n"+strings.Replace(placementPolicy, "%s", "auto", 1)))
}

// ruleName is the name of the rule.
const ruleName = "flood"

// choose returns the stage of the policy's rule by the costs of this host, for traffic of which it drops the given number of packets. All other
// packets are forwarded.
func choose(policy *control.Compiled, costs *cost.Model, t plan.Target, arrived, dropped uint64) (plan.Stage, error) {
	mix := cost.Mix{
		Seconds: float64(arrived) / articleRate, Arrived: arrived, Forwarded: arrived - dropped, Rules: map[string]uint64{ruleName: dropped},
	}
	plan, err := policy.Placed(t, costs, mix)
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

// above returns the row's cost divided by the cost of the cheapest other row, as the median of the rounds; 1 if the row is the cheapest.
func above(r *rig.Row, others ...*rig.Row) float64 {
	most := 1.0
	for _, o := range others {
		most = max(most, r.By(o, "ns/op").Median())
	}
	return most
}

// crossing returns the share of dropped packets above which one row costs less than the other. Both have a row for each share. The cost is a linear
// function of the share: the cost of a dropped packet and the cost of another packet, each times its share. So the difference of two costs is linear,
// too. The result is the zero of the least squares line of this difference; NaN if the zero is not between 0 and 1.
func crossing(shares []float64, one, other []*rig.Row) float64 {
	var n, x, y, xx, xy float64
	for i, share := range shares {
		d := one[i].Figure("ns/op").Minus(other[i].Figure("ns/op")).Median()
		n, x, y, xx, xy = n+1, x+share, y+d, xx+share*share, xy+share*d
	}
	slope := (n*xy - x*y) / (n*xx - x*x)
	at := -(y - slope*x) / n / slope
	if !(at > 0 && at < 1) {
		return math.NaN()
	}
	return at
}
