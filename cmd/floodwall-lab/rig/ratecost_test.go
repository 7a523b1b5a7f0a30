// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// costTable returns a table of costs after a round: a row that was not measured, the row that the others' costs are compared with, and two more.
func costTable() *RateTable {
	row := func(name string, pps float64) *Row {
		return &Row{Name: name, Label: name, Rounds: rounds(pps)}
	}
	base, filter := row("iptables/raw", 5e6), row("iptables/filter", 4e6)
	base.Article, filter.Article = []string{"280", "baseline"}, []string{"250", "12%"}
	unmeasured := &Row{Name: "iptables/accept/untracked", Label: "iptables/accept/untracked"}
	return &RateTable{
		Table: Table{Title: "cost: a packet", Rows: []*Row{unmeasured, base, filter, row("floodwall/xdp/raw", 20e6)}}, cores: OneCore, Base: base, By: "x-raw-drop",
	}
}

func TestCostTable(t *testing.T) {
	o := &report.Outcome{Name: "cost"}
	costTable().publish(o)
	want := [][]string{
		{"iptables/accept/untracked", "", "", "", "", "", "", ""},
		{"iptables/raw", "280", "baseline", "5.00", "5.00 .. 5.00", "200.0", "baseline", ""},
		{"iptables/filter", "250", "12%", "4.00", "4.00 .. 4.00", "250.0", "+25%", ""},
	}
	if diff := cmp.Diff(want, o.Tables[0].Rows[:3]); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := o.Tables[0].Rows[3][6]; got != "-75%" {
		t.Errorf("a packet of 50 ns costs %s, want -75%%", got)
	}
}

// TestCostBars checks that the bars of a table of costs are in the outcome, and not in the table.
func TestCostBars(t *testing.T) {
	table, o := costTable(), &report.Outcome{Name: "cost"}
	table.cores, table.Rival, table.least = twoCores, table.Rows[2], table.Rows[3]
	table.Rows[3].Goals = append(OfLeast(0.7), XRival("iptables/filter", 6)...)
	table.publish(o)
	want := []string{"cost/floodwall/xdp/raw of least >= 0.70 met", "cost/floodwall/xdp/raw x iptables/filter >= 6.00 MISSED"}
	var got []string
	for _, bar := range o.Bars {
		got = append(got, bar.Name+" "+bar.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
}
