// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"math"
	"testing"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// at returns a row with these figures.
func at(costs ...float64) *rig.Row {
	r := &rig.Row{}
	for _, ns := range costs {
		r.Rounds = append(r.Rounds, rig.Reading{"ns/op": ns})
	}
	return r
}

// line returns rows with these costs of a dropped packet and of a forwarded one.
func line(shares []float64, dropped, other float64) (all []*rig.Row) {
	for _, s := range shares {
		all = append(all, at(s*dropped+(1-s)*other))
	}
	return all
}

func TestCrossing(t *testing.T) {
	shares := []float64{0.0001, 0.01, 0.3, 1}
	for _, c := range []struct{ lateDropped, lateOther, want float64 }{
		{160, 490, 0.25}, // a dropped packet costs 30 less, another one 10 more: a quarter
		{100, 490, math.NaN()},
		{160, 510, math.NaN()},
	} {
		got := crossing(shares, line(shares, c.lateDropped, c.lateOther), line(shares, 130, 500))
		if !(math.Abs(got-c.want) < 1e-9) && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%v: they cross at %v", c, got)
		}
	}
}

func TestAbove(t *testing.T) {
	one := at(102, 110, 104)
	if got := above(one, one, at(100, 100, 100)); math.Abs(got-1.04) > 1e-9 {
		t.Errorf("above is %v, want 1.04: the median of 1.02, 1.10 and 1.04", got)
	}
	if got := above(one, one, at(200, 200, 200)); got != 1 {
		t.Errorf("the cheapest is above by %v, want 1", got)
	}
}

// TestChoose uses a model in which a rule in raw costs 50 more for a forwarded packet, and 50 less for a dropped one. If half of the packets are
// dropped, both stages cost the same.
func TestChoose(t *testing.T) {
	costs := &cost.Model{
		Reach: map[string]float64{"xdp": 10, "raw": 100, "filter": 180},
		Work: map[string]cost.Work{
			"xdp/xdp": {Hook: 20}, "nftables/raw": {Hook: 50}, "nftables/filter": {Hook: 20}, "nftables/ingress": {Hook: 10},
		},
	}
	policy, err := automaticPolicy()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		target  plan.Target
		dropped uint64
		stage   plan.Stage
	}{
		{plan.TargetNftables, 0, plan.StageFilter},
		{plan.TargetNftables, 40_000, plan.StageFilter},
		{plan.TargetNftables, 60_000, plan.StageRaw},
		{plan.TargetNftables, 100_000, plan.StageRaw},
		{plan.TargetXDP, 100_000, plan.StageXDP},
	} {
		stage, err := choose(policy, costs, want.target, 100_000, want.dropped)
		if err != nil || stage != want.stage {
			t.Errorf("%s, %d of 100,000 dropped: %s, %v, want %s", want.target, want.dropped, stage, err, want.stage)
		}
	}
}
