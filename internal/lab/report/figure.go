package report

import (
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"

	"github.com/floodwall/floodwall/internal/lab"
)

// A machine that others share is slower at one time than at another, for all that is measured. So where a result is also
// given as a share of its limit in the same round, that share is compared, and none of the rates and times that it comes
// from. The first of these that both results have stands for all.
var shares = []string{yardstick, "of-least", "able-of-limit", "of-limit", "of-no-firewall"}

// yardstick is the unit of shares of a program that is no build's, and that is run by turns with the one measured.
const yardstick = "of-yardstick"

// absolute are the units for which such a share stands.
var absolute = []string{
	"ns/op", "Mpps", "x-raw-drop", "x-rival", "able-Mpps", "of-limit", "req/s", "full-req/s",
}

// coarse is times that a whole machine takes, which depend on what else it does: they must change by coarseTimes as much.
func coarse(unit string) bool { return strings.HasSuffix(unit, "-ns") || strings.HasSuffix(unit, "-s") }

const coarseTimes = 5

// due are the units of what has come of so much as was due: that share is another figure of the same result, and how much is
// due differs from one version to another.
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
			continue // the share of itself
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

// own reports whether a result is of Floodwall, which results have in their names, and not of a peer.
func own(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.HasPrefix(part, "floodwall") })
}

// newChange compares the figures of the rounds by benchstat's method: medians, and the U test.
func newChange(name, unit string, old, new []float64) Change {
	c := Change{Name: name, Unit: unit, Rounds: [2]int{len(old), len(new)}, Own: own(name), Verdict: Same, figures: [2][]float64{old, new}}
	a, b := sample(old), sample(new)
	c.Old = benchmath.AssumeNothing.Summary(a, confidence).Center
	c.New = benchmath.AssumeNothing.Summary(b, confidence).Center
	c.P = benchmath.AssumeNothing.Compare(a, b).P
	switch {
	case c.Old != 0:
		c.Delta = c.New/c.Old - 1
	case c.New != 0: // no share says how much more than nothing it is
		c.Delta = math.Copysign(1, c.New)
	}
	return c
}

// confidence is for the interval around a median, of which only the median is used.
const confidence = 0.95

// sample is figures for benchmath, which sorts what it is given.
func sample(figures []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(figures), &benchmath.DefaultThresholds)
}
