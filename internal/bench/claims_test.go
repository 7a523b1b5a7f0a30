package bench

import (
	"strings"
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
	const confirmed, refuted, none = "confirmed", "refuted", "not measured"
	for _, tt := range []struct {
		name string
		ns   float64 // 0: not measured
		want [4]string
	}{
		{"", 0, [4]string{confirmed, confirmed, confirmed, confirmed}},
		{"iptables/filter", 99, [4]string{refuted, confirmed, confirmed, confirmed}},
		{"iptables/filter", 130, [4]string{refuted, confirmed, confirmed, confirmed}},
		{"iptables/filter", 0, [4]string{none, confirmed, confirmed, confirmed}},
		{"iptables/raw/rules=5", 101, [4]string{confirmed, refuted, confirmed, confirmed}},
		{"iptables/raw/rules=5", 140, [4]string{confirmed, refuted, confirmed, confirmed}},
		{"iptables/set/n=1", 90, [4]string{confirmed, confirmed, refuted, confirmed}},
		{"iptables/set/n=265000", 122, [4]string{confirmed, confirmed, refuted, confirmed}},
		{"iptables/set/n=65000", 0, [4]string{confirmed, confirmed, none, confirmed}},
		{"iptables/accept/untracked", 190, [4]string{confirmed, confirmed, confirmed, refuted}},
		{"iptables/accept/untracked", 360, [4]string{confirmed, confirmed, confirmed, refuted}},
		{"iptables/raw", 0, [4]string{none, none, confirmed, none}},
	} {
		ns := map[string]float64{}
		for name, value := range asTheArticle {
			ns[name] = value
		}
		ns[tt.name] = tt.ns
		for i, row := range claimsTable(costRows(ns)).Rows {
			if verdict, _, _ := strings.Cut(row[3], ";"); verdict != tt.want[i] {
				t.Errorf("%s takes %v ns: %q is %s, want %s", tt.name, tt.ns, row[0], verdict, tt.want[i])
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
