// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// finding returns an experiment that has a result and then ends with end's error, or without one.
func finding(name string, end func() error) Experiment {
	return Experiment{Name: name, Doc: name, run: func(_ context.Context, s *rig.Session) error {
		s.Outcome.Tables = append(s.Outcome.Tables, &report.Table{Title: name + ": found", Head: []string{""}})
		s.Outcome.Results = append(s.Outcome.Results, lab.Result{Name: name, Metrics: []lab.Metric{{Value: math.NaN(), Unit: "Mpps"}}})
		s.Outcome.Curves = []report.Curve{{Name: name, Points: [][2]float64{{1, 2}, {2, math.NaN()}}}}
		return end()
	}}
}

func well() error { return nil }

// TestOneFails runs experiments that fail and experiments that do not, in turn.
func TestOneFails(t *testing.T) {
	fails := func() error { return errors.New("no wire") }
	for _, tt := range []struct {
		experiments []Experiment
		want        string
	}{
		{[]Experiment{finding("a", well)}, ""},
		{[]Experiment{finding("a", well), finding("b", fails), finding("c", well)}, "experiment b: no wire"},
		{[]Experiment{finding("a", fails), finding("b", well), finding("c", fails)}, "2 of 3 experiments failed, the first: experiment a: no wire"},
	} {
		var r report.Report
		got := ""
		if err := run(t.Context(), &r, tt.experiments, rig.Options{}.WithDefaults()); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("error %q, want %q", got, tt.want)
		}
		var text strings.Builder
		if err := errors.Join(r.WriteTables(&text, false), r.WriteJSON(&text)); err != nil {
			t.Error(err)
		}
		for _, e := range tt.experiments {
			if !strings.Contains(text.String(), e.Name+": found") {
				t.Errorf("the report lacks what %s found:\n%s", e.Name, text.String())
			}
		}
		if failed := strings.Contains(text.String(), "experiments that did not reach their end"); failed != (tt.want != "") {
			t.Errorf("failures are told: %t", failed)
		}
	}
}

// TestStop ends a run in its second experiment.
func TestStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stops := func() error {
		cancel()
		return ctx.Err()
	}
	var r report.Report
	err := run(ctx, &r, []Experiment{finding("a", well), finding("b", stops), finding("c", well)}, rig.Options{}.WithDefaults())
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	var got []string
	for _, e := range r.Experiments {
		got = append(got, e.Name+" "+e.Error)
	}
	if diff := cmp.Diff([]string{"a ", "b the run was stopped"}, got); diff != "" {
		t.Errorf("experiments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c"}, r.NotRun); diff != "" {
		t.Errorf("not run (-want +got):\n%s", diff)
	}
}

// TestUsualTimes checks that there is a usual time for each experiment. A run estimates its remaining time by these times.
func TestUsualTimes(t *testing.T) {
	for _, e := range Experiments {
		if rig.Usual(e.Name, false) == 0 || rig.Usual(e.Name, true) == 0 {
			t.Errorf("it is not known how long %s takes", e.Name)
		}
	}
}
