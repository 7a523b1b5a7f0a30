// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

func line(commit string, day int, kind Kind, rules int) Line {
	return Line{
		Commit: commit, Date: time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC), Kind: kind,
		Instructions: map[string]int{"rules=20": rules}, OfYardstick: map[string]float64{"program/floodwall/rules=20/packet=udp4": 0.5},
	}
}

// TestAppend checks that a commit has one line of a kind, also if it is added several times, and that lines are in the order of their commits.
func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	for _, step := range []struct {
		line Line
		want bool
	}{
		{line("b", 2, Measured, 50), true}, {line("b", 2, Measured, 49), false}, {line("a", 1, Allowed, 60), true}, {line("b", 2, Allowed, 51), true},
	} {
		if added, err := Append(path, step.line); err != nil || added != step.want {
			t.Errorf("%+v: %t, %v; want %t", step.line, added, err, step.want)
		}
	}
	got, err := Read(path)
	want := []Line{line("a", 1, Allowed, 60), line("b", 2, Measured, 50), line("b", 2, Allowed, 51)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	var picture bytes.Buffer
	if err := Chart(got).WriteSVG(&picture); err != nil || !strings.Contains(picture.String(), "rules=20") {
		t.Errorf("the chart: %v, %d bytes", err, picture.Len())
	}
}

func TestRatios(t *testing.T) {
	r := &report.Report{Experiments: []*report.Outcome{
		{Name: "drop", Results: []lab.Result{{Name: "drop/x", Metrics: []lab.Metric{{Value: 1, Unit: "of-yardstick"}}}}},
		{Name: "program", Results: []lab.Result{{Name: "program/x", Metrics: []lab.Metric{{Value: 7, Unit: "ns/op"}, {Value: 0.5, Unit: "of-yardstick"}}}}},
	}}
	if diff := cmp.Diff(map[string]float64{"program/x": 0.5}, Ratios(r)); diff != "" {
		t.Error(diff)
	}
}
