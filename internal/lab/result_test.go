// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResultLine(t *testing.T) {
	r := Result{Name: "drop/rules=20", Runs: 1, Metrics: []Metric{{Value: 162.3, Unit: "ns/op"}, {Value: 6.16, Unit: "Mpps"}}}
	const want = "BenchmarkFloodwall/drop/rules=20 1 162.3 ns/op 6.16 Mpps"
	if got := r.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestReport reads back a written report.
func TestReport(t *testing.T) {
	machine, err := DescribeMachine()
	if err != nil {
		t.Fatal(err)
	}
	if machine.Kernel == "" || machine.Cores < 1 || machine.MemoryMB == 0 {
		t.Errorf("machine is not described: %+v", machine)
	}
	report := Report{Machine: machine, Results: []Result{
		{Name: "drop/rules=20", Runs: 3, Metrics: []Metric{
			{Value: 0.5, Unit: "apply-s"}, {Value: 6.25, Unit: "Mpps", Spread: 0.25, Samples: []float64{6.375, 6.25, 6.125}},
		}},
		{Name: "sets/ipset", Note: "ipset is not installed"},
		{Name: "sets/nft", Runs: 3, Metrics: []Metric{{Value: 0.5, Unit: "Mpps"}}},
	}}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report, back); diff != "" {
		t.Errorf("json (-written +read):\n%s", diff)
	}
}
