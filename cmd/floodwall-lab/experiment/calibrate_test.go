// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"testing"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// TestStageCost computes figures from known costs, with noise in all rounds but some, and checks that the results are the known costs.
func TestStageCost(t *testing.T) {
	want := stageCost{cost.Work{Hook: 30, Rule: 5, Set: 20, Limit: 50, Local: 40}, 200}
	noisy := func(ns float64) *rig.Probe {
		return &rig.Probe{Costs: report.Samples{ns + 40, ns, ns + 7, ns + 3, ns, ns + 90}}
	}
	const base = 300
	p := &stageProbes{
		base: noisy(base), one: noisy(base + 35), many: noisy(base + 35 + manyRules*5), sets: noisy(base + 35 + manySets*25),
		locals: noisy(base + 35 + manyLocals*45), limits: noisy(base + 35 + manyLimits*55), drop: noisy(200 + 30 + 5),
	}
	if got := p.cost(allRounds); got != want {
		t.Errorf("costs are %+v, want %+v", got, want)
	}
	if even, odd := p.cost(evenRounds), p.cost(oddRounds); even != want || odd != want {
		t.Errorf("by halves of the rounds, costs are %+v and %+v, want %+v", even, odd, want)
	}
	p.one = noisy(base - 10)
	if got := p.cost(allRounds).positive(); got.Hook != 0 || got.Rule <= 0 {
		t.Errorf("a stage that seems to save time costs %+v", got)
	}
}
