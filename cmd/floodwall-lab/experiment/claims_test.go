// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"testing"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// tableOf returns a table of costs after three rounds. In the first two, each row has the given time per packet in nanoseconds. In the last round,
// all rows took twice as long.
func tableOf(ns map[string]float64) *rig.RateTable {
	t := new(rig.RateTable)
	for _, name := range []string{
		"iptables/accept/untracked", "iptables/raw", "iptables/filter", "iptables/raw/rules=5", "iptables/set/n=1",
		"iptables/set/n=65000", "iptables/set/n=265000",
	} {
		r := &rig.Row{Name: name}
		if ns[name] > 0 {
			r.Rounds = []rig.Reading{{"ns/op": ns[name]}, {"ns/op": ns[name]}, {"ns/op": 2 * ns[name]}}
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func TestPacketCostClaims(t *testing.T) {
	asTheArticle := map[string]float64{
		"iptables/accept/untracked": 264, "iptables/raw": 100, "iptables/filter": 112, "iptables/raw/rules=5": 112,
		"iptables/set/n=1": 110, "iptables/set/n=65000": 110, "iptables/set/n=265000": 112,
	}
	for _, tt := range []struct {
		name string
		ns   float64 // 0: not measured
		want [4]report.Verdict
	}{
		{"", 0, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Confirmed, report.Confirmed}},
		{"iptables/filter", 99, [4]report.Verdict{report.Refuted, report.Confirmed, report.Confirmed, report.Confirmed}},
		{"iptables/filter", 130, [4]report.Verdict{report.Refuted, report.Confirmed, report.Confirmed, report.Confirmed}},
		{"iptables/filter", 0, [4]report.Verdict{report.NotMeasurable, report.Confirmed, report.Confirmed, report.Confirmed}},
		{"iptables/raw/rules=5", 101, [4]report.Verdict{report.Confirmed, report.Refuted, report.Confirmed, report.Confirmed}},
		{"iptables/raw/rules=5", 140, [4]report.Verdict{report.Confirmed, report.Refuted, report.Confirmed, report.Confirmed}},
		{"iptables/set/n=1", 90, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Refuted, report.Confirmed}},
		{"iptables/set/n=265000", 122, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Refuted, report.Confirmed}},
		{"iptables/set/n=65000", 0, [4]report.Verdict{report.Confirmed, report.Confirmed, report.NotMeasurable, report.Confirmed}},
		{"iptables/accept/untracked", 190, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Confirmed, report.Refuted}},
		{"iptables/accept/untracked", 360, [4]report.Verdict{report.Confirmed, report.Confirmed, report.Confirmed, report.Refuted}},
		{"iptables/raw", 0, [4]report.Verdict{report.NotMeasurable, report.NotMeasurable, report.Confirmed, report.NotMeasurable}},
	} {
		ns := map[string]float64{}
		for name, value := range asTheArticle {
			ns[name] = value
		}
		ns[tt.name] = tt.ns
		for i, c := range outcome(tableOf(ns))[:len(tt.want)] {
			if c.Verdict != tt.want[i] {
				t.Errorf("%s takes %v ns: %q is %s, want %s", tt.name, tt.ns, c.Text, c.Verdict, tt.want[i])
			}
		}
	}
}

// TestNoisyClaims judges disturbed rounds. The figures are from a short run under load. Most medians are outside of the claim's bounds, but by less
// than the difference between rounds.
func TestNoisyClaims(t *testing.T) {
	raw := report.Samples{10e6, 9.6e6, 10.4e6, 9.9e6, 10.1e6}
	for _, tt := range []struct {
		name   string
		rounds report.Samples // of dropping in filter
		want   report.Verdict
		here   string
	}{
		{"two rounds of noise", report.Samples{10.5e6, 9.8e6}, report.NotMeasurable, "0.97 x (0.79 to 1.14)"},
		{"five rounds of noise", report.Samples{10.2e6, 9.9e6, 10.3e6, 9.5e6, 10.7e6}, report.NotMeasurable, "0.98 x (0.94 to 1.04)"},
		{"one round", report.Samples{12e6}, report.NotMeasurable, "0.83 x in one round"},
		{"dearer, without doubt", report.Samples{9e6, 8.7e6, 9.4e6, 8.8e6, 9.1e6}, report.Confirmed, "1.11 x (1.10 to 1.12)"},
		{"cheaper, without doubt", report.Samples{11e6, 10.5e6, 11.5e6, 10.9e6, 11.1e6}, report.Refuted, "0.91 x (0.90 to 0.91)"},
		{"by the bound, partly above", report.Samples{8.1e6, 7.6e6, 8.3e6, 7.7e6, 8.4e6}, report.NotMeasurable, "1.25 x (1.21 to 1.29)"},
	} {
		table := rig.Table{Rows: []*rig.Row{{Name: "iptables/raw", Rounds: ratesOf(raw)}, {Name: "iptables/filter", Rounds: ratesOf(tt.rounds)}}}
		if c := outcome(&rig.RateTable{Table: table})[0]; c.Verdict != tt.want || c.Here != tt.here {
			t.Errorf("%s: %q by %q, want %q by %q", tt.name, c.Verdict, c.Here, tt.want, tt.here)
		}
	}
}

// ratesOf returns the readings of packets per second.
func ratesOf(pps report.Samples) (rounds []rig.Reading) {
	for _, rate := range pps {
		rounds = append(rounds, rig.Reading{"ns/op": 1e9 / rate})
	}
	return rounds
}
