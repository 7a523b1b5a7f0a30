// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// machine simulates runs of a build on a noisy machine. Each row has a cost, and each round of a row has a separate error.
type machine struct {
	*rand.Rand
	rounds int
	speed  float64 // of the whole machine, and so also of the limit
}

// run measures this number of rows of Floodwall, slower by a factor, and the same number of nft.
func (m machine) run(rows int, slower float64) *Report {
	o := &Outcome{Name: "program"}
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
	drop := &Outcome{Name: "drop"}
	var rates, shares []float64
	for range m.rounds {
		share := 0.5 * math.Exp(0.02*m.NormFloat64()) / slower
		rates, shares = append(rates, m.speed*share), append(shares, share)
	}
	drop.Results = []lab.Result{{Name: "drop/one-core/floodwall/rules=20", Metrics: []lab.Metric{
		{Unit: "Mpps", Samples: rates}, {Unit: "of-least", Samples: shares},
	}}}
	return &Report{Time: time.Unix(0, 0), Machine: lab.Machine{Kernel: "6.18", CPU: "x", Cores: 2}, Experiments: []*Outcome{o, drop}}
}

func newMachine(t *testing.T, rounds int) machine {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return machine{rand.New(rand.NewPCG(seed, 0)), rounds, 10}
}

// TestSameBuild compares runs of one build, the second on a machine that is a third slower in everything. There must be far fewer alarms than chance
// allows.
func TestSameBuild(t *testing.T) {
	m, alarms := newMachine(t, 10), 0
	for range 100 {
		old := m.run(30, 1)
		slow := m
		slow.speed = m.speed / 1.3
		if len(Compare(old, slow.run(30, 1), CompareOptions{}).Worse()) > 0 {
			alarms++
		}
	}
	if alarms > 2 {
		t.Errorf("%d of 100 comparisons of one build find something worse", alarms)
	}
}

// TestSlower checks that a change of a tenth is found, in the mean of the rows and in the share of the limit, and is not attributed to nft.
func TestSlower(t *testing.T) {
	m := newMachine(t, 10)
	c := Compare(m.run(30, 1), m.run(30, 1.1), CompareOptions{})
	for i, want := range []string{"program ns/op worse", "program ns/op same", "drop/one-core of-least worse"} {
		if got := c.Means[i]; fmt.Sprint(got.Name, " ", got.Unit, " ", got.Verdict) != want {
			t.Errorf("mean %+v, want %s", got, want)
		}
	}
	for _, r := range c.Rows {
		if !r.Own && (r.Verdict == Worse || r.Verdict == Better) {
			t.Errorf("%s is %s, and not of Floodwall", r.Name, r.Verdict)
		}
	}
	if faster := Compare(m.run(30, 1.1), m.run(30, 1), CompareOptions{}); faster.Means[0].Verdict != Better || len(faster.Worse()) > 0 {
		t.Errorf("the other way round: %s, %d worse", faster.Means[0].Verdict, len(faster.Worse()))
	}
}

// TestOthersSlower makes nft slower, too, and more so than Floodwall. Then the build is not the cause.
func TestOthersSlower(t *testing.T) {
	m := newMachine(t, 10)
	old, new := m.run(30, 1), m.run(30, 1.1)
	old.Experiments, new.Experiments = old.Experiments[:1], new.Experiments[:1]
	for i := range new.Experiments[0].Results {
		if r := &new.Experiments[0].Results[i]; !own(r.Name) {
			for round := range r.Metrics[0].Samples {
				r.Metrics[0].Samples[round] *= 1.15
			}
		}
	}
	if mean := Compare(old, new, CompareOptions{}).Means[0]; !mean.Own || mean.Verdict != Same {
		t.Errorf("Floodwall is slower by 10%%, nft by 15%%: %+v, want the same", mean)
	}
}

// TestOthersFaster makes nft faster, which is no excuse for Floodwall, and in one round slower by chance.
func TestOthersFaster(t *testing.T) {
	for _, others := range []func(round int) float64{
		func(int) float64 { return 0.85 },
		func(round int) float64 { return Choice(round == 0, 4.0, 1) },
	} {
		m := newMachine(t, 10)
		old, new := m.run(30, 1), m.run(30, 1.1)
		old.Experiments, new.Experiments = old.Experiments[:1], new.Experiments[:1]
		for i := range new.Experiments[0].Results {
			if r := &new.Experiments[0].Results[i]; !own(r.Name) {
				for round := range r.Metrics[0].Samples {
					r.Metrics[0].Samples[round] *= others(round)
				}
			}
		}
		if mean := Compare(old, new, CompareOptions{}).Means[0]; !mean.Own || mean.Verdict != Worse {
			t.Errorf("Floodwall is slower by 10%%, nft is not: %+v, want worse", mean)
		}
	}
}

// TestYardstick has a machine that is a third slower in everything, and a build that is a tenth slower.
func TestYardstick(t *testing.T) {
	m := newMachine(t, 10)
	byYardstick := func(machine, build float64) *Report {
		r := m.run(30, machine*build)
		r.Experiments = r.Experiments[:1]
		for i := range r.Experiments[0].Results {
			result := &r.Experiments[0].Results[i]
			share := lab.Metric{Unit: "of-yardstick"}
			for _, ns := range result.Metrics[0].Samples {
				if !own(result.Name) {
					ns *= machine
				}
				share.Samples = append(share.Samples, 60*machine/ns)
			}
			result.Metrics = append(result.Metrics, share)
		}
		return r
	}
	for build, want := range map[float64]ChangeVerdict{1: Same, 1.1: Worse} {
		c := Compare(byYardstick(1, 1), byYardstick(1.3, build), CompareOptions{})
		if got := c.Means[0]; got.Verdict != want || got.Unit != "of-yardstick" {
			t.Errorf("a build that is slower %v times: %+v, want %s", build, got, want)
		}
	}
}

// TestWarnings checks that the report names everything that makes it less reliable.
func TestWarnings(t *testing.T) {
	m := newMachine(t, 3)
	old, other := m.run(2, 1), m.run(3, 2)
	other.Machine.Kernel = "6.12"
	old.Experiments[0].Yardstick, other.Experiments[0].Yardstick = "0123", "4567"
	var out strings.Builder
	c := Compare(old, other, CompareOptions{})
	if err := c.WriteText(&out, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"different kernels: 6.18 and 6.12", "another program (0123 and 4567)", "fewer than 4 rounds", "only in the new run: program/floodwall/rules=2, program/nft/rules=2",
		"program/floodwall/rules=1 ", "no significant change",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
}

// TestFromNothing has a figure that was 0 in each round of the old run. Its growth is no share, but must be reported.
func TestFromNothing(t *testing.T) {
	report := func(timeouts float64) *Report {
		m := lab.Metric{Unit: "timeouts", Samples: []float64{timeouts, timeouts, timeouts, timeouts, timeouts}}
		o := &Outcome{Name: "dns", Results: []lab.Result{{Name: "dns/floodwall", Metrics: []lab.Metric{m}}}}
		return &Report{Time: time.Unix(0, 0), Experiments: []*Outcome{o}}
	}
	for now, want := range map[float64]int{0: 0, 100: 1} {
		if worse := Compare(report(0), report(now), CompareOptions{}).Worse(); len(worse) != want {
			t.Errorf("from 0 to %v timeouts: %+v, want %d worse", now, worse, want)
		}
	}
}
