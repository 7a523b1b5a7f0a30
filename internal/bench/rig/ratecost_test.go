package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// costTable is a table of costs as after a round: a row that was not measured, the one that the others' costs are compared
// with, and two more.
func costTable() *rateTable {
	row := func(name string, pps float64) *rate { return &rate{name: name, label: name, rounds: series{pps}} }
	base, filter := row("iptables/raw", 5e6), row("iptables/filter", 4e6)
	base.article, filter.article = &articleRow{280, "baseline"}, &articleRow{250, "12%"}
	unmeasured := &rate{name: "iptables/accept/untracked", label: "iptables/accept/untracked"}
	return &rateTable{title: "cost: a packet", cores: oneCore, base: base, rows: []*rate{unmeasured, base, filter, row("floodwall/xdp/raw", 20e6)}}
}

func TestCostTable(t *testing.T) {
	o := &Outcome{Name: "cost"}
	costTable().publish(o)
	want := [][]string{
		{"iptables/accept/untracked", "", "", "", "", "", "", "", ""},
		{"iptables/raw", "280", "baseline", "5.00", "5.00 .. 5.00", "200.0", "baseline", "", ""},
		{"iptables/filter", "250", "12%", "4.00", "4.00 .. 4.00", "250.0", "+25%", "", ""},
	}
	if diff := cmp.Diff(want, o.Tables[0].Rows[:3]); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := o.Tables[0].Rows[3][6]; got != "-75%" {
		t.Errorf("a packet of 50 ns costs %s, want -75%%", got)
	}
}

// TestCostBars shows what a bar in a table of costs is of.
func TestCostBars(t *testing.T) {
	table, o := costTable(), &Outcome{Name: "cost"}
	table.cores, table.rival, table.empty = twoCores, table.rows[2], table.rows[3]
	table.rows[3].least, table.rows[3].times = 0.7, 6
	table.publish(o)
	if got, want := o.Tables[0].Rows[3][7], "of empty >= 0.70 met, x >= 6.00 MISSED"; got != want {
		t.Errorf("bars: %q, want %q", got, want)
	}
}
