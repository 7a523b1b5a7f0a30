// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"golang.org/x/perf/benchfmt"
)

// Result is the result of one case of an experiment.
type Result struct {
	Name    string   `json:"name"` // experiment and case, as in "drop/rules=20"
	Runs    int      `json:"runs"` // rounds that the metrics summarize
	Metrics []Metric `json:"metrics"`
	Note    string   `json:"note,omitempty"` // why a figure is missing or doubtful
}

// Metric is a figure with its unit, and its variation between rounds.
type Metric struct {
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`             // as in benchmark lines: "ns/op", "Mpps"
	Spread float64 `json:"spread,omitempty"` // largest minus smallest round, in Unit

	// Samples are the figures of all rounds, in their order; empty for a figure without rounds.
	Samples []float64 `json:"samples,omitempty"`
}

// Report contains the results of a run, and the machine of the run.
type Report struct {
	Machine Machine  `json:"machine"`
	Results []Result `json:"results"`
}

// PPS returns the metrics of a packet rate: time per packet, and millions of packets per second.
func PPS(pps float64) []Metric {
	return []Metric{{Value: 1e9 / pps, Unit: "ns/op"}, {Value: pps / 1e6, Unit: "Mpps"}}
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// WriteBench writes the report in the Go benchmark format (golang.org/design/14313-benchmark-format) for benchstat: the machine as configuration
// lines, and a line for each round of each result. Figures without rounds are in the line of the first round.
func (r *Report) WriteBench(w io.Writer) error {
	out := benchfmt.NewWriter(w)
	config := r.Machine.config()
	for i := range r.Results {
		for _, line := range r.Results[i].rounds() {
			line.Config = config
			if err := out.Write(line); err != nil {
				return fmt.Errorf("write benchmark lines: %w", err)
			}
		}
	}
	return nil
}

// String returns the result as a line in the Go benchmark format.
func (r *Result) String() string {
	var line bytes.Buffer
	_ = benchfmt.NewWriter(&line).Write(r.bench()) // a buffer does not fail
	return string(bytes.TrimSpace(line.Bytes()))
}

func (r *Result) bench() *benchfmt.Result {
	line := r.line(max(r.Runs, 1))
	for _, m := range r.Metrics {
		line.Values = append(line.Values, benchfmt.Value{Value: m.Value, Unit: m.Unit})
	}
	return line
}

func (r *Result) line(runs int) *benchfmt.Result {
	return &benchfmt.Result{Name: benchfmt.Name("Floodwall/" + r.Name), Iters: runs}
}

// rounds returns a line for each round; empty without metrics.
func (r *Result) rounds() (lines []*benchfmt.Result) {
	for _, m := range r.Metrics {
		for i, v := range m.samples() {
			if i == len(lines) {
				lines = append(lines, r.line(1))
			}
			lines[i].Values = append(lines[i].Values, benchfmt.Value{Value: v, Unit: m.Unit})
		}
	}
	return lines
}

// samples returns the figures of the rounds, or the single figure.
func (m *Metric) samples() []float64 {
	if len(m.Samples) == 0 {
		return []float64{m.Value}
	}
	return m.Samples
}
