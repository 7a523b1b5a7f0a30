// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"

	"github.com/floodwall/floodwall/internal/lab"
)

// TestBenchLines reads written benchmark lines with the reader of benchstat.
func TestBenchLines(t *testing.T) {
	machine, err := lab.DescribeMachine()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	err = (&lab.Report{Machine: machine, Results: []lab.Result{
		{Name: "drop/rules=20", Runs: 3, Metrics: []lab.Metric{
			{Value: 0.5, Unit: "apply-s"}, {Value: 6.25, Unit: "Mpps", Spread: 0.25, Samples: []float64{6.375, 6.25, 6.125}},
		}},
		{Name: "sets/ipset", Note: "ipset is not installed"},
		{Name: "sets/nft", Runs: 3, Metrics: []lab.Metric{{Value: 0.5, Unit: "Mpps"}}},
	}}).WriteBench(&text)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]float64)
	for r := benchfmt.NewReader(&text, "report"); r.Scan(); {
		line, ok := r.Result().(*benchfmt.Result)
		if !ok {
			t.Fatalf("not a result: %v", r.Result())
		}
		v, _ := line.Value("Mpps")
		got[string(line.Name)] = append(got[string(line.Name)], v)
		if _, ok := line.Value("apply-s"); ok != (v == 6.375) {
			t.Errorf("what is found once stands in a line with %v Mpps: %v", v, ok)
		}
		if line.GetConfig("kernel") != machine.Kernel {
			t.Errorf("kernel %q, want %q", line.GetConfig("kernel"), machine.Kernel)
		}
	}
	want := map[string][]float64{"Floodwall/drop/rules=20": {6.375, 6.25, 6.125}, "Floodwall/sets/nft": {0.5}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("benchmark lines (-want +got):\n%s", diff)
	}
}
