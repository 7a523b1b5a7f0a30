// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// rows returns a table after two rounds of its rows, and eight of the program that was swapped.
func rows() *RateTable {
	t := &RateTable{Table: Table{Title: "drop: a flood"}}
	t.least = &Row{Name: "least", Label: "the least", Rounds: rounds(5e6, 5e6)}
	t.Rows = []*Row{
		{Name: "empty", Label: "empty XDP_DROP", Rounds: rounds(10e6, 10e6)},
		t.least,
		{
			Name: "floodwall/rules=20", Label: "floodwall: 20 rules", Goals: OfLeast(0.95),
			Rounds: rounds(4e6, 4e6, 4e6, 4e6, 4e6, 4e6, 4e6, 4e6),
		},
		{Name: "slow", Label: "slow | source", Rounds: rounds(2e6, 3e6)},
		{Name: "bpfilter", Label: "bpfilter", Missing: "not packaged"},
		{Name: "still", Label: "still", Rounds: rounds(0, 0)},
	}
	for i, read := range t.Rows[2].Rounds {
		read[ofLeast] = 4 / []float64{5, 5, 5, 5, 5, 5, 5, 2}[i]
	}
	return t
}

// rounds returns the readings of packet rates.
func rounds(pps ...float64) (all []Reading) {
	for _, rate := range pps {
		all = append(all, rateReading(rate))
	}
	return all
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

                        Mpps  ns/packet  of least    from .. to
  empty XDP_DROP       10.00      100.0      2.00  2.00 .. 2.00
  the least             5.00      200.0      1.00  1.00 .. 1.00
  floodwall: 20 rules   4.00      250.0      0.80  0.80 .. 0.80
  slow | source         2.50      400.0      0.50  0.40 .. 0.60  ~
  bpfilter                                                       not packaged
  still                                                          nothing arrived: others had the CPUs

  ~ unsteady: the interval is wider than 15% of the figure, or others had the receiving CPU.

`

const wantMarkdown = `### drop: a flood, source and receiver on one core

|  | Mpps | ns/packet | of least | from .. to |  |
| --- | ---: | ---: | ---: | ---: | --- |
| empty XDP_DROP | 10.00 | 100.0 | 2.00 | 2.00 .. 2.00 |  |
| the least | 5.00 | 200.0 | 1.00 | 1.00 .. 1.00 |  |
| floodwall: 20 rules | 4.00 | 250.0 | 0.80 | 0.80 .. 0.80 |  |
| slow \| source | 2.50 | 400.0 | 0.50 | 0.40 .. 0.60 | ~ |
| bpfilter |  |  |  |  | not packaged |
| still |  |  |  |  | nothing arrived: others had the CPUs |

- ~ unsteady: the interval is wider than 15% of the figure, or others had the receiving CPU.

`

// TestFailedRounds checks that rounds in which nothing arrived are left out, and that the table reports them.
func TestFailedRounds(t *testing.T) {
	table := &RateTable{cores: OneCore}
	table.least = &Row{Name: "least", Rounds: rounds(10e6, 10e6, 0, 10e6)}
	table.Rows = []*Row{table.least, {Name: "floodwall", Label: "floodwall", Rounds: rounds(0, 4e6, 5e6, 5e6)}}
	o := &report.Outcome{Name: "drop"}
	table.publish(o)
	if diff := cmp.Diff([]string{"floodwall", "5.00", "200.0", "0.45", "0.40 .. 0.50", "~!"}, o.Tables[0].Rows[1]); diff != "" {
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

// TestRival compares rows with a tool that they should beat.
func TestRival(t *testing.T) {
	table, o := rows(), &report.Outcome{Name: "payload"}
	table.Rival = table.Rows[3]
	table.Rows[2].Goals = XRival("slow", 3)
	table.publish(o)
	if diff := cmp.Diff([]string{"x slow | source", ""}, o.Tables[0].Head[5:]); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1.60", ""}, o.Tables[0].Rows[2][5:]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	want := []*report.Bar{{Name: "payload/floodwall/rules=20 x slow", Value: 1.6, Bound: 3}}
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
	swapped := o.Results[2]
	if swapped.Runs != 8 || swapped.Note != "" || len(swapped.Metrics) != 3 {
		t.Errorf("result of a swapped program: %+v", swapped)
	}
	if of := swapped.Metrics[2]; of.Unit != "of-least" || of.Value != 0.8 || len(of.Samples) != 8 || of.Samples[7] != 2 {
		t.Errorf("its share: %+v, want 0.8, and 2 in the last round", of)
	}
	if diff := cmp.Diff(lab.Result{Name: "drop/bpfilter", Note: "not packaged"}, o.Results[4]); diff != "" {
		t.Errorf("missing result (-want +got):\n%s", diff)
	}
	r := report.Report{Experiments: []*report.Outcome{o}}
	missed := []*report.Bar{{Name: "drop/floodwall/rules=20 of least", Value: 0.8, Bound: 0.95}}
	if diff := cmp.Diff(missed, r.Missed()); diff != "" {
		t.Errorf("missed bars (-want +got):\n%s", diff)
	}
	var out strings.Builder
	if err := r.WriteJSON(&out); err != nil { // infinite figures would make it fail
		t.Error(err)
	}
	out.Reset()
	if err := r.WriteBench(&out); err != nil || strings.Count(out.String(), "BenchmarkFloodwall/drop/") != 3*2+8 {
		t.Errorf("benchmark lines, want 3 rows of 2 rounds and one of 8: %v\n%s", err, &out)
	}
}
