package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// machine makes runs of a build on a machine that is noisy: each row has a cost, each round of a row an error of its own.
type machine struct {
	*rand.Rand
	rounds int
	speed  float64 // of the whole machine, limit and all
}

// run measures so many rows of Floodwall, slower by a factor, and as many of nft.
func (m machine) run(rows int, slower float64) *report.Report {
	o := &report.Outcome{Name: "program"}
	add := func(name string, ns float64) {
		var figures []float64
		for range m.rounds {
			figures = append(figures, ns*math.Exp(0.06*m.NormFloat64()))
		}
		o.Results = append(o.Results, lab.Result{Name: name, Metrics: []lab.Metric{{Value: ns, Unit: "ns/op", Samples: figures}}})
	}
	for i := range rows {
		add(fmt.Sprintf("program/floodwall/rules=%d", i), slower*float64(30+i))
		add(fmt.Sprintf("program/nft/rules=%d", i), 500)
	}
	drop := &report.Outcome{Name: "drop"}
	var rates, shares []float64
	for range m.rounds {
		share := 0.5 * math.Exp(0.02*m.NormFloat64()) / slower
		rates, shares = append(rates, m.speed*share), append(shares, share)
	}
	drop.Results = []lab.Result{{Name: "drop/one-core/floodwall/rules=20", Metrics: []lab.Metric{
		{Unit: "Mpps", Samples: rates}, {Unit: "of-empty", Samples: shares},
	}}}
	return &report.Report{Time: time.Unix(0, 0), Machine: lab.Machine{Kernel: "6.18", CPU: "x", Cores: 2}, Experiments: []*report.Outcome{o, drop}}
}

func newMachine(t *testing.T, rounds int) machine {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return machine{rand.New(rand.NewPCG(seed, 0)), rounds, 10}
}

// TestSameBuild compares runs of one build, the second on a machine that is a third slower for all: no more alarms than
// chance allows by far.
func TestSameBuild(t *testing.T) {
	m, alarms := newMachine(t, 10), 0
	for range 100 {
		old := m.run(30, 1)
		slow := m
		slow.speed = m.speed / 1.3
		if len(Reports(old, slow.run(30, 1), Options{}).Worse()) > 0 {
			alarms++
		}
	}
	if alarms > 2 {
		t.Errorf("%d of 100 comparisons of one build find something worse", alarms)
	}
}

// TestSlower finds a tenth, in the mean of the rows and in the share of the limit, and does not blame it on nft.
func TestSlower(t *testing.T) {
	m := newMachine(t, 10)
	c := Reports(m.run(30, 1), m.run(30, 1.1), Options{})
	for i, name := range []string{"program", "drop/one-core"} {
		if got := c.Means[i]; got.Name != name || got.Verdict != Worse {
			t.Errorf("mean %+v, want %s worse", got, name)
		}
	}
	if c.Means[1].Unit != "of-empty" {
		t.Errorf("rates are compared by %s, not by their share of the limit", c.Means[1].Unit)
	}
	for _, r := range c.Rows {
		if !r.Own && (r.Verdict == Worse || r.Verdict == Better) {
			t.Errorf("%s is %s, and not of Floodwall", r.Name, r.Verdict)
		}
	}
	if faster := Reports(m.run(30, 1.1), m.run(30, 1), Options{}); faster.Means[0].Verdict != Better || len(faster.Worse()) > 0 {
		t.Errorf("the other way round: %s, %d worse", faster.Means[0].Verdict, len(faster.Worse()))
	}
}

// TestWarnings has the report say what makes it worth less.
func TestWarnings(t *testing.T) {
	m := newMachine(t, 3)
	old, other := m.run(2, 1), m.run(3, 2)
	other.Machine.Kernel = "6.12"
	var out strings.Builder
	c := Reports(old, other, Options{})
	if err := c.WriteText(&out, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"different kernels: 6.18 and 6.12", "fewer than 4 rounds", "only in the new run: program/floodwall/rules=2, program/nft/rules=2",
		"program/floodwall/rules=1 ", "no significant change",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

// TestFromNothing has a figure that was 0 in each round of the old run: no share says how much it grew, but it did.
func TestFromNothing(t *testing.T) {
	report := func(timeouts float64) *report.Report {
		m := lab.Metric{Unit: "timeouts", Samples: []float64{timeouts, timeouts, timeouts, timeouts, timeouts}}
		o := &report.Outcome{Name: "dns", Results: []lab.Result{{Name: "dns/floodwall", Metrics: []lab.Metric{m}}}}
		return &report.Report{Time: time.Unix(0, 0), Experiments: []*report.Outcome{o}}
	}
	for now, want := range map[float64]int{0: 0, 100: 1} {
		if worse := Reports(report(0), report(now), Options{}).Worse(); len(worse) != want {
			t.Errorf("from 0 to %v timeouts: %+v, want %d worse", now, worse, want)
		}
	}
}
