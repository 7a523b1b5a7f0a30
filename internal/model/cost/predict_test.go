// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"math"
	"testing"

	"github.com/floodwall/floodwall/internal/model/cost"
)

// TestPredict compares predictions for a few packets with costs that were added up by hand.
func TestPredict(t *testing.T) {
	m := &cost.Model{
		Reach: map[string]float64{"raw": 100, "filter": 300}, Conntrack: 1000, Route: 10,
		Work: map[string]cost.Work{
			"nftables/raw": {Hook: 1, Rule: 2, Set: 4, Limit: 8, Local: 16}, "nftables/filter": {Hook: 1, Rule: 2, Local: 16},
			"iptables/raw": {Hook: 7},
		},
	}
	one := cost.Asked{Rules: 1}
	drop := cost.Step{Rule: "drop", Drops: true, Each: one}
	local := cost.Step{Rule: "drop", Flow: cost.Local, Drops: true, Each: one, Matched: cost.Asked{Locals: 1}}
	pass := cost.Step{Rule: "pass", Each: one}
	mix := cost.Mix{Seconds: 2, Arrived: 100, Local: 20, Forwarded: 60, Rules: map[string]uint64{"drop": 10, "pass": 40}}
	tracked := mix
	tracked.Tracked = true
	station := func(stage string, flow cost.Flow, steps ...cost.Step) cost.Station {
		return cost.Station{Stage: stage, Flow: flow, Steps: steps}
	}
	for _, tt := range []struct {
		what     string
		target   string
		stations []cost.Station
		mix      cost.Mix
		want     float64 // nanoseconds
	}{
		{"nothing", "nftables", nil, mix, 0},
		{"a hook", "nftables", []cost.Station{station("raw", cost.All)}, mix, 100},
		{"the target's own work", "iptables", []cost.Station{station("raw", cost.All)}, mix, 700},
		{"a drop", "nftables", []cost.Station{station("raw", cost.All, drop)}, mix, 100 + 100*2 + 10*100},
		{"before it 40 packets leave", "nftables", []cost.Station{station("raw", cost.All, pass, drop)}, mix, 100 + 100*2 + 60*2 + 10*100},
		{"behind it 10 less come", "nftables", []cost.Station{station("raw", cost.All, drop, pass)}, mix, 100 + 100*2 + 90*2 + 10*100},
		{"a set for all", "nftables", []cost.Station{station("raw", cost.All, cost.Step{Each: cost.Asked{Sets: 2}})}, mix, 100 + 100*8},
		{"a test of what matches", "nftables", []cost.Station{station("raw", cost.All, local)}, mix, 100 + 100*2 + 10*16 + 10*100},
		{"input only", "nftables", []cost.Station{station("filter", cost.Local, local)}, mix, 30 + 30*2 + 10*16 + 10*310},
		{"with conntrack", "nftables", []cost.Station{station("filter", cost.Local, local)}, tracked, 30 + 30*2 + 10*16 + 10*1310},
		{
			"a rule for both is shared as what passes, 20 to 60", "nftables",
			[]cost.Station{station("filter", cost.Local, drop), station("filter", cost.Forwarded, drop)}, mix, 90 + 90*2 + 10*310,
		},
		{
			"what raw drops does not come to filter", "nftables",
			[]cost.Station{station("raw", cost.All, drop), station("filter", cost.Local, pass), station("filter", cost.Forwarded, pass)},
			mix, 100 + 100*2 + 10*100 + 80 + 80*2,
		},
		{"an early stage sees what filter drops", "nftables", []cost.Station{station("raw", cost.All), station("filter", cost.Local, local)}, mix, 100 + 30 + 30*2 + 10*16 + 10*310},
	} {
		got := m.Predict(tt.target, tt.stations, tt.mix)
		if near(got.PerPacket, tt.want/100) && near(got.CPU, tt.want/2e9) {
			continue
		}
		t.Errorf("%s: %g ns a packet, %g of a CPU, want %g, %g", tt.what, got.PerPacket, got.CPU, tt.want/100, tt.want/2e9)
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
