package packetcost

import (
	"testing"

	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/bench/rig"
)

// tableOf is a table of costs as after a round, with the time per packet of each row in nanoseconds.
func tableOf(ns map[string]float64) *rig.RateTable {
	t := new(rig.RateTable)
	for _, name := range []string{
		"iptables/accept/untracked", "iptables/raw", "iptables/filter", "iptables/raw/rules=5", "iptables/set/n=1",
		"iptables/set/n=65000", "iptables/set/n=265000",
	} {
		r := &rig.Rate{Name: name}
		if ns[name] > 0 {
			r.Rounds = report.Samples{1e9 / ns[name]}
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func TestClaims(t *testing.T) {
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
