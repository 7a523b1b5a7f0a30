// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"

	"github.com/floodwall/floodwall/internal/lab"
)

// A machine that others share has a varying speed, which affects all measurements. A result may also be given as a share of its limit in the same
// round. Then only that share is compared, and not the rates and times that it comes from. The first of these shares that both results have is
// compared.
var shares = []string{yardstick, "of-least", "able-of-limit", "of-limit", "of-no-firewall"}

// yardstick is the unit of shares of the yardstick's time. That program belongs to no build, and runs in turn with the measured one.
const yardstick = "of-yardstick"

// absolute are the units that such a share replaces.
var absolute = []string{
	"ns/op", "Mpps", "x-raw-drop", "x-rival", "able-Mpps", "of-limit", "req/s", "full-req/s",
}

// coarse reports whether a unit is a time of the whole machine, which depends on its other load. A change of such a figure must be larger by the
// factor coarseTimes.
func coarse(unit string) bool { return strings.HasSuffix(unit, "-ns") || strings.HasSuffix(unit, "-s") }

const coarseTimes = 5

// due are the units of figures that depend on the amount of requested work. Another figure of the same result is the share of that work that was
// done. The amount differs between versions.
var due = []string{"connections/s"}

// changes compares the figures of a result in both runs.
func changes(old, new *lab.Result) (all []Change) {
	share := ""
	for _, unit := range slices.Backward(shares) {
		if metric(old, unit) != nil && metric(new, unit) != nil {
			share = unit
		}
	}
	for i := range old.Metrics {
		a := &old.Metrics[i]
		b := metric(new, a.Unit)
		if b == nil || len(a.Samples) == 0 || len(b.Samples) == 0 {
			continue
		}
		if slices.Contains(due, a.Unit) {
			continue
		}
		if share != "" && a.Unit != share && (slices.Contains(absolute, a.Unit) || slices.Contains(shares, a.Unit)) {
			continue
		}
		if a.Unit == "of-least" && isLimit(a.Samples) && isLimit(b.Samples) {
			continue // its share of itself
		}
		all = append(all, newChange(old.Name, a.Unit, a.Samples, b.Samples))
	}
	return all
}

func metric(r *lab.Result, unit string) *lab.Metric {
	if i := slices.IndexFunc(r.Metrics, func(m lab.Metric) bool { return m.Unit == unit }); i >= 0 {
		return &r.Metrics[i]
	}
	return nil
}

func isLimit(samples []float64) bool {
	return !slices.ContainsFunc(samples, func(v float64) bool { return v != 1 })
}

// own reports whether a result is of Floodwall, and not of a program that it is compared with. Floodwall's results have its name.
func own(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.HasPrefix(part, "floodwall") })
}

// newChange compares the figures of the rounds like benchstat: by medians and the U test.
func newChange(name, unit string, old, new []float64) Change {
	c := Change{Name: name, Unit: unit, Rounds: [2]int{len(old), len(new)}, Own: own(name), Verdict: Same, figures: [2][]float64{old, new}}
	a, b := sample(old), sample(new)
	c.Old = benchmath.AssumeNothing.Summary(a, confidence).Center
	c.New = benchmath.AssumeNothing.Summary(b, confidence).Center
	c.P = benchmath.AssumeNothing.Compare(a, b).P
	switch {
	case c.Old != 0:
		c.Delta = c.New/c.Old - 1
	case c.New != 0: // the growth from 0 is no share
		c.Delta = math.Copysign(1, c.New)
	}
	return c
}

// confidence is for the interval around a median. Only the median is used.
const confidence = 0.95

// sample returns a copy of figures for benchmath, which sorts its input.
func sample(figures []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(figures), &benchmath.DefaultThresholds)
}
