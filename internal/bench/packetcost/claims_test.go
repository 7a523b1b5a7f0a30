package bench

import (
	"testing"
)

// costRows is a table of costs as after a round, with the time per packet of each row in nanoseconds.
func costRows(ns map[string]float64) *rateTable {
	t := new(rateTable)
	for _, name := range []string{
		"iptables/accept/untracked", "iptables/raw", "iptables/filter", "iptables/raw/rules=5", "iptables/set/n=1",
		"iptables/set/n=65000", "iptables/set/n=265000",
	} {
		r := &rate{name: name}
		if ns[name] > 0 {
			r.rounds = series{1e9 / ns[name]}
		}
		t.rows = append(t.rows, r)
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
		want [4]Verdict
	}{
		{"", 0, [4]Verdict{Confirmed, Confirmed, Confirmed, Confirmed}},
		{"iptables/filter", 99, [4]Verdict{Refuted, Confirmed, Confirmed, Confirmed}},
		{"iptables/filter", 130, [4]Verdict{Refuted, Confirmed, Confirmed, Confirmed}},
		{"iptables/filter", 0, [4]Verdict{NotMeasurable, Confirmed, Confirmed, Confirmed}},
		{"iptables/raw/rules=5", 101, [4]Verdict{Confirmed, Refuted, Confirmed, Confirmed}},
		{"iptables/raw/rules=5", 140, [4]Verdict{Confirmed, Refuted, Confirmed, Confirmed}},
		{"iptables/set/n=1", 90, [4]Verdict{Confirmed, Confirmed, Refuted, Confirmed}},
		{"iptables/set/n=265000", 122, [4]Verdict{Confirmed, Confirmed, Refuted, Confirmed}},
		{"iptables/set/n=65000", 0, [4]Verdict{Confirmed, Confirmed, NotMeasurable, Confirmed}},
		{"iptables/accept/untracked", 190, [4]Verdict{Confirmed, Confirmed, Confirmed, Refuted}},
		{"iptables/accept/untracked", 360, [4]Verdict{Confirmed, Confirmed, Confirmed, Refuted}},
		{"iptables/raw", 0, [4]Verdict{NotMeasurable, NotMeasurable, Confirmed, NotMeasurable}},
	} {
		ns := map[string]float64{}
		for name, value := range asTheArticle {
			ns[name] = value
		}
		ns[tt.name] = tt.ns
		for i, c := range costOutcome(costRows(ns))[:len(tt.want)] {
			if c.Verdict != tt.want[i] {
				t.Errorf("%s takes %v ns: %q is %s, want %s", tt.name, tt.ns, c.Text, c.Verdict, tt.want[i])
			}
		}
	}
}
