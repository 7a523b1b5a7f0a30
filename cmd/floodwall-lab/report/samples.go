// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/floodwall/floodwall/internal/lab"
)

// Samples are the values of one figure, one for each round.
type Samples []float64

// Median returns the median; NaN if there are no values.
func (s Samples) Median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Longest returns the greatest value; NaN if there is none.
func (s Samples) Longest() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Max(s)
}

// Sum returns the sum of the values.
func (s Samples) Sum() (sum float64) {
	for _, v := range s {
		sum += v
	}
	return sum
}

// spread returns the difference between the largest figure and the smallest.
func (s Samples) spread() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s) - slices.Min(s)
}

// Each applies fn to each value.
func (s Samples) Each(fn func(float64) float64) (all Samples) {
	for _, v := range s {
		all = append(all, fn(v))
	}
	return all
}

// Positive returns the values above 0.
func (s Samples) Positive() (all Samples) {
	for _, v := range s {
		if v > 0 {
			all = append(all, v)
		}
	}
	return all
}

// By returns the values divided by the values of another figure in the same rounds, for the rounds in which both were measured.
func (s Samples) By(other Samples) (all Samples) {
	for i := range min(len(s), len(other)) {
		if other[i] > 0 {
			all = append(all, s[i]/other[i])
		}
	}
	return all
}

// Minus returns the differences to the values of another figure, round by round.
func (s Samples) Minus(other Samples) Samples {
	out := make(Samples, min(len(s), len(other)))
	for i := range out {
		out[i] = s[i] - other[i]
	}
	return out
}

// Metric returns the median as a metric, with the values of all rounds.
func (s Samples) Metric(unit string) lab.Metric {
	return lab.Metric{Value: s.Median(), Unit: unit, Spread: s.spread(), Samples: s}
}

// Confidence is the confidence of the intervals in reports.
const Confidence = 0.95

// Interval contains the true median with Confidence, by order statistics. For few values it is the range from the least to the greatest, with less
// confidence.
func (s Samples) Interval() (low, high float64) {
	if len(s) == 0 {
		return math.NaN(), math.NaN()
	}
	low, high = slices.Min(s), slices.Max(s)
	i := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(s), &benchmath.DefaultThresholds), Confidence)
	return max(low, i.Lo), min(high, i.Hi)
}

// MeanInterval contains the true mean with Confidence, by Student's t. With less than two values it is infinite, as one value says nothing about the
// variation.
func (s Samples) MeanInterval() (low, high float64) {
	if len(s) < 2 {
		return math.Inf(-1), math.Inf(1)
	}
	i := benchmath.AssumeNormal.Summary(benchmath.NewSample(slices.Clone(s), &benchmath.DefaultThresholds), Confidence)
	return i.Lo, i.Hi
}

// ClaimInterval returns the interval for judging claims. It is Interval, which is robust against disturbed rounds. For so few values that Interval
// has less than its Confidence, it is MeanInterval.
func (s Samples) ClaimInterval() (low, high float64) {
	if len(s) < fewestOrdered {
		return s.MeanInterval()
	}
	return s.Interval()
}

// fewestOrdered is the smallest number of values for which the range from the lowest to the highest contains the median with Confidence: 1 - 2/2^6 is
// above Confidence.
const fewestOrdered = 6

// UnsteadySpread is a width of the interval of a row's figures, as a share of the median. Rows with a wider interval are marked.
const UnsteadySpread = 0.15

// Unsteady reports whether the median is uncertain.
func (s Samples) Unsteady() bool {
	return s.WiderThan(UnsteadySpread)
}

// WiderThan reports whether the interval is wider than a share of the median.
func (s Samples) WiderThan(share float64) bool {
	low, high := s.Interval()
	return len(s) > 1 && high-low > share*s.Median()
}
