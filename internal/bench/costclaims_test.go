package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// costRows is a table of costs as after a round, with the time per packet of each row in nanoseconds.
func costRows(ns map[string]float64) *rateTable {
	t := &rateTable{title: "cost: a packet", cores: oneCore}
	for _, name := range []string{
		"iptables/accept/untracked", "iptables/raw", "iptables/filter", "iptables/raw/rules=5", "iptables/set/n=1",
		"iptables/set/n=65000", "iptables/set/n=265000", "floodwall/xdp/raw",
	} {
		r := &rate{name: name, label: name}
		if ns[name] > 0 {
			r.rounds = series{1e9 / ns[name]}
		}
		if name == "iptables/raw" {
			t.base, r.article = r, &articleRow{280, "baseline"}
		}
		t.rows = append(t.rows, r)
	}
	t.rows[2].article = &articleRow{250, "12%"}
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

func TestCostTable(t *testing.T) {
	o := &Outcome{Name: "cost"}
	costRows(map[string]float64{"iptables/raw": 200, "iptables/filter": 250, "floodwall/xdp/raw": 50}).publish(o)
	want := [][]string{
		{"iptables/accept/untracked", "", "", "", "", "", "", "", ""},
		{"iptables/raw", "280", "baseline", "5.00", "5.00 .. 5.00", "200.0", "baseline", "", ""},
		{"iptables/filter", "250", "12%", "4.00", "4.00 .. 4.00", "250.0", "+25%", "", ""},
	}
	if diff := cmp.Diff(want, o.Tables[0].Rows[:3]); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := o.Tables[0].Rows[7][6]; got != "-75%" {
		t.Errorf("a packet of 50 ns costs %s, want -75%%", got)
	}
}

// TestCostBars shows what a bar in a table of costs is of.
func TestCostBars(t *testing.T) {
	table, o := costRows(map[string]float64{"iptables/raw": 200, "iptables/filter": 250, "floodwall/xdp/raw": 50}), &Outcome{Name: "cost"}
	table.cores, table.rival, table.empty = twoCores, table.rows[2], table.rows[7]
	table.rows[7].least, table.rows[7].times = 0.7, 6
	table.publish(o)
	if got, want := o.Tables[0].Rows[7][7], "of empty >= 0.70 met, x >= 6.00 MISSED"; got != want {
		t.Errorf("bars: %q, want %q", got, want)
	}
}
