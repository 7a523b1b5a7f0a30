package bench

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/lab"
)

// finding is an experiment that finds something and then ends with an error, or none.
func finding(name string, end func() error) Experiment {
	return Experiment{Name: name, Doc: name, run: func(_ context.Context, s *session) error {
		s.outcome.Tables = append(s.outcome.Tables, &Table{Title: name + ": found", Head: []string{""}})
		s.outcome.Results = append(s.outcome.Results, lab.Result{Name: name, Metrics: []lab.Metric{{Value: math.NaN(), Unit: "Mpps"}}})
		s.outcome.Curves = []Curve{{Name: name, Points: [][2]float64{{1, 2}, {2, math.NaN()}}}}
		return end()
	}}
}

func well() error { return nil }

// TestOneFails has experiments fail between others that do not.
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
		var r Report
		got := ""
		if err := r.run(t.Context(), tt.experiments, Options{}.withDefaults()); err != nil {
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
	var r Report
	err := r.run(ctx, []Experiment{finding("a", well), finding("b", stops), finding("c", well)}, Options{}.withDefaults())
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

// TestOutlook follows a run whose experiments take twice what is usual.
func TestOutlook(t *testing.T) {
	for _, e := range Experiments {
		if usual := usualTime[e.Name]; usual.full == 0 || usual.quick == 0 {
			t.Errorf("it is not known how long %s takes", e.Name)
		}
	}
	o := Options{Quick: true}.withDefaults()
	var experiments []Experiment
	for _, name := range []string{"drop", "cost", "program"} {
		experiments = append(experiments, Experiment{Name: name})
	}
	usual := func(name string) time.Duration { return usualTime[name].quick }
	l, now := newOutlook(experiments, o), time.Unix(0, 0)
	check := func(known, want time.Duration) {
		t.Helper()
		if got := l.left(now, known); got != want {
			t.Errorf("%s: %v left, want %v", l, got, want)
		}
	}
	l.begin(now)
	check(0, usual("drop")+usual("cost")+usual("program"))
	now = now.Add(usual("drop"))
	check(0, usual("cost")+usual("program"))
	check(time.Minute, time.Minute+usual("cost")+usual("program"))
	now = now.Add(usual("drop"))
	l.begin(now)
	check(0, 2*usual("cost")+2*usual("program"))
	o.Rounds *= 3
	l = newOutlook(experiments[2:], o)
	l.begin(now)
	check(0, 3*usual("program"))
}

func TestProgressText(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "1s left", 59 * time.Second: "59s left", 90 * time.Second: "2m left", 3 * time.Hour: "180m left"} {
		if got := leftText(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := cut("drop: größer", 8); got != "drop: gr" {
		t.Errorf("cut to %q", got)
	}
}
