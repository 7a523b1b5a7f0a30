// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"
)

func TestResultLine(t *testing.T) {
	r := Result{Name: "drop/rules=20", Runs: 1, Metrics: []Metric{{Value: 162.3, Unit: "ns/op"}, {Value: 6.16, Unit: "Mpps"}}}
	const want = "BenchmarkFloodwall/drop/rules=20 1 162.3 ns/op 6.16 Mpps"
	if got := r.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPPS(t *testing.T) {
	want := []Metric{{Value: 250, Unit: "ns/op"}, {Value: 4, Unit: "Mpps"}}
	if diff := cmp.Diff(want, PPS(4e6)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReport reads back a written report, with standard readers of its formats.
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
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report, back); diff != "" {
		t.Errorf("json (-written +read):\n%s", diff)
	}

	text.Reset()
	if err := report.WriteBench(&text); err != nil {
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
