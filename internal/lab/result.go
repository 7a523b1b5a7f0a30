// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"strings"
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

// WriteBench writes the report in the Go benchmark format (golang.org/design/14313-benchmark-format) for benchstat: the machine as configuration
// lines, and a line for each round of each result. Figures without rounds are in the line of the first round.
func (r *Report) WriteBench(w io.Writer) error {
	text := r.Machine.config() + "\n"
	for i := range r.Results {
		for _, line := range r.Results[i].rounds() {
			text += line + "\n"
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write benchmark lines: %w", err)
	}
	return nil
}

// String returns the result as a line in the Go benchmark format.
func (r *Result) String() string {
	line := r.line(max(r.Runs, 1))
	for _, m := range r.Metrics {
		line += m.figure(m.Value)
	}
	return line
}

// line returns the beginning of a line, which its figures follow.
func (r *Result) line(runs int) string { return fmt.Sprintf("BenchmarkFloodwall/%s %d", r.Name, runs) }

// figure returns a value of the metric as a part of a line.
func (m *Metric) figure(value float64) string { return fmt.Sprintf(" %v %s", value, m.Unit) }

// rounds returns a line for each round; empty without metrics.
func (r *Result) rounds() (lines []string) {
	for _, m := range r.Metrics {
		for i, v := range m.samples() {
			if i == len(lines) {
				lines = append(lines, r.line(1))
			}
			lines[i] += m.figure(v)
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

// Better says in which direction a figure of a unit gets better: 1 for more, -1 for less, 0 for neither or unknown. Shares ("of-empty") are of a
// limit or of a requested amount; multiples ("x-rival") are of a rival.
func Better(unit string) int {
	switch {
	case less[unit] || strings.HasSuffix(unit, "-ns") || strings.HasSuffix(unit, "-s") || strings.HasSuffix(unit, "-B"):
		return -1
	case more[unit] || strings.HasPrefix(unit, "of-") || strings.HasPrefix(unit, "x-") || strings.HasSuffix(unit, "-of-limit"):
		return 1
	}
	return 0
}

var (
	less = map[string]bool{"ns/op": true, "timeouts": true, "failed": true, "amplification": true}
	more = map[string]bool{
		"Mpps": true, "able-Mpps": true, "req/s": true, "full-req/s": true, "answered": true, "answered/s": true,
		"completed": true, "connections/s": true,
	}
)
