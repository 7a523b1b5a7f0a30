package rig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// rows is a table as after two rounds.
func rows() *RateTable {
	t := &RateTable{Title: "drop: a flood"}
	t.empty = &Rate{Name: "empty", Label: "empty XDP_DROP (the limit)", Rounds: report.Samples{10e6, 10e6}, reference: report.Samples{7e6}}
	t.touch = &Rate{Name: "one-octet", Label: "one octet", Rounds: report.Samples{5e6, 5e6}}
	t.Rows = []*Rate{
		t.empty, t.touch,
		{Name: "floodwall/rules=20", Label: "floodwall: 20 rules", Rounds: report.Samples{4e6, 6e6}, reference: report.Samples{4e6}, Least: 0.9, disturbed: 1},
		{Name: "slow", Label: "slow | source", Rounds: report.Samples{2e6, 2e6}, starved: 2},
		{Name: "bpfilter", Label: "bpfilter", Missing: "not packaged"},
		{Name: "still", Label: "still", Rounds: report.Samples{0, 0}},
	}
	return t
}

func TestRateTable(t *testing.T) {
	o := &report.Outcome{Name: "drop"}
	rows().publish(o)
	var text, markdown strings.Builder
	if err := o.Tables[0].WriteText(&text); err != nil {
		t.Fatal(err)
	}
	one := rows()
	one.cores = OneCore
	for _, r := range one.Rows {
		r.reference = nil
	}
	one.publish(o)
	if err := o.Tables[1].WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantText, text.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantMarkdown, markdown.String()); diff != "" {
		t.Errorf("markdown (-want +got):\n%s", diff)
	}
}

const wantText = `drop: a flood, source and receiver on a core each

                               Mpps      min .. max  ns/packet  of empty  of one octet   bar, of empty  of 7 Mpps  bar, of 7 Mpps
  empty XDP_DROP (the limit)  10.00  10.00 .. 10.00      100.0      1.00          2.00                       1.00
  one octet                    5.00    5.00 .. 5.00      200.0      0.50          1.00
  floodwall: 20 rules          5.00    4.00 .. 6.00      200.0      0.50          1.00  >= 0.90 MISSED       0.57  >= 0.90 MISSED  ~
  slow | source                2.00    2.00 .. 2.00      500.0      0.20          0.40                                             ^
  bpfilter                                                                                                                         not packaged
  still                                                                                                                            nothing arrived: others had the CPUs

  ~ unsteady: others had the receiving CPU, or the rounds differ by more than 15%.
  ^ the source was slower than the receiver: the figure is a lower bound.

`

const wantMarkdown = `### drop: a flood, source and receiver on one core

|  | Mpps | min .. max | ns/packet | of empty | of one octet |  |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
| empty XDP_DROP (the limit) | 10.00 | 10.00 .. 10.00 | 100.0 | 1.00 | 2.00 |  |
| one octet | 5.00 | 5.00 .. 5.00 | 200.0 | 0.50 | 1.00 |  |
| floodwall: 20 rules | 5.00 | 4.00 .. 6.00 | 200.0 | 0.50 | 1.00 | ~ |
| slow \| source | 2.00 | 2.00 .. 2.00 | 500.0 | 0.20 | 0.40 | ^ |
| bpfilter |  |  |  |  |  | not packaged |
| still |  |  |  |  |  | nothing arrived: others had the CPUs |

- ~ unsteady: others had the receiving CPU, or the rounds differ by more than 15%.
- ^ the source was slower than the receiver: the figure is a lower bound.

`

// TestFailedRounds leaves out the rounds in which nothing arrived, and says so.
func TestFailedRounds(t *testing.T) {
	table := &RateTable{cores: OneCore}
	table.empty = &Rate{Name: "empty", Rounds: report.Samples{10e6, 10e6, 0, 10e6}}
	table.Rows = []*Rate{table.empty, {Name: "floodwall", Label: "floodwall", Rounds: report.Samples{0, 4e6, 5e6, 5e6}}}
	o := &report.Outcome{Name: "drop"}
	table.publish(o)
	if diff := cmp.Diff([]string{"floodwall", "5.00", "4.00 .. 5.00", "200.0", "0.45", "", "~!"}, o.Tables[0].Rows[1]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	if want := "! nothing arrived in 1 of 4 rounds"; !strings.Contains(strings.Join(o.Tables[0].Notes, "\n"), want) {
		t.Errorf("notes %q, want %q", o.Tables[0].Notes, want)
	}
	want := [][]float64{{250, 200, 200}, {4, 5, 5}, {0.4, 0.5}}
	for i, m := range o.Results[1].Metrics {
		if diff := cmp.Diff(want[i], m.Samples); diff != "" {
			t.Errorf("%s (-want +got):\n%s", m.Unit, diff)
		}
	}
}

// TestRival compares rows with a tool that they should be faster than.
func TestRival(t *testing.T) {
	table, o := rows(), &report.Outcome{Name: "payload"}
	table.Rival = table.Rows[3]
	table.Rows[2].Least, table.Rows[2].Times = 0, 3
	table.publish(o)
	head, row := o.Tables[0].Head, o.Tables[0].Rows[2]
	if diff := cmp.Diff([]string{"x slow | source", "bar, x", ""}, head[9:]); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2.50", ">= 3.00 MISSED", "~"}, row[9:]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	want := []*report.Bar{{Name: "payload/floodwall/rules=20 x slow", Value: 2.5, Bound: 3}}
	if diff := cmp.Diff(want, o.Bars); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	one := table.On(OneCore)
	if one.Rival != one.Rows[3] {
		t.Error("on one core, the rival is a row of the other table")
	}
}

func TestRateResults(t *testing.T) {
	o := &report.Outcome{Name: "drop"}
	rows().publish(o)
	four, six := 4.0, 6.0 // Mpps
	slowest, fastest := 1e3/four, 1e3/six
	want := lab.Result{Name: "drop/floodwall/rules=20", Runs: 2, Note: "~", Metrics: []lab.Metric{
		{Value: (slowest + fastest) / 2, Unit: "ns/op", Spread: slowest - fastest, Samples: []float64{slowest, fastest}},
		{Value: 5, Unit: "Mpps", Spread: 2, Samples: []float64{4, 6}},
		{Value: 0.5, Unit: "of-empty", Spread: six/10 - four/10, Samples: []float64{0.4, 0.6}},
		{Value: 1, Unit: "of-one-octet", Spread: six/5 - four/5, Samples: []float64{0.8, 1.2}},
		{Value: 4.0 / 7, Unit: "of-7Mpps", Samples: []float64{4.0 / 7}},
	}}
	if diff := cmp.Diff(want, o.Results[2]); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(lab.Result{Name: "drop/bpfilter", Note: "not packaged"}, o.Results[4]); diff != "" {
		t.Errorf("missing result (-want +got):\n%s", diff)
	}
	r := report.Report{Experiments: []*report.Outcome{o}}
	missed := []*report.Bar{
		{Name: "drop/floodwall/rules=20 of empty", Value: 0.5, Bound: 0.9},
		{Name: "drop/floodwall/rules=20 of 7 Mpps", Value: 4.0 / 7, Bound: 0.9},
	}
	if diff := cmp.Diff(missed, r.Missed()); diff != "" {
		t.Errorf("missed bars (-want +got):\n%s", diff)
	}
	var out strings.Builder
	if err := r.WriteJSON(&out); err != nil { // which infinite figures would make fail
		t.Error(err)
	}
	out.Reset()
	if err := r.WriteBench(&out); err != nil || strings.Count(out.String(), "BenchmarkFloodwall/drop/") != 8 {
		t.Errorf("benchmark lines, want 4 rows of 2 rounds: %v\n%s", err, &out)
	}
}
