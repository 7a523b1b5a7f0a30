package report

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/floodwall/floodwall/internal/lab"
)

// Samples is one figure, taken once a round.
type Samples []float64

// Median is the middle figure, of an even number the mean of the two in the middle; NaN when there is none.
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

// Longest is the greatest figure; NaN when there is none.
func (s Samples) Longest() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Max(s)
}

// spread is the difference between the largest figure and the smallest.
func (s Samples) spread() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s) - slices.Min(s)
}

// Each is what fn makes of the figures.
func (s Samples) Each(fn func(float64) float64) (all Samples) {
	for _, v := range s {
		all = append(all, fn(v))
	}
	return all
}

// Positive is the figures above 0.
func (s Samples) Positive() (all Samples) {
	for _, v := range s {
		if v > 0 {
			all = append(all, v)
		}
	}
	return all
}

// By is the figures as shares of another's of the same rounds, as far as both were taken.
func (s Samples) By(other Samples) (all Samples) {
	for i := range min(len(s), len(other)) {
		if other[i] > 0 {
			all = append(all, s[i]/other[i])
		}
	}
	return all
}

// Minus is the differences to other figures, round by round.
func (s Samples) Minus(other Samples) Samples {
	out := make(Samples, min(len(s), len(other)))
	for i := range out {
		out[i] = s[i] - other[i]
	}
	return out
}

// Metric is the median as a result, with the figures that it is of.
func (s Samples) Metric(unit string) lab.Metric {
	return lab.Metric{Value: s.Median(), Unit: unit, Spread: s.spread(), Samples: s}
}

// Confidence is that of the intervals that reports name.
const Confidence = 0.95

// Interval is around the median of what the figures are of, which it holds with Confidence, by order statistics. Of few figures
// it is all from the least to the greatest, with less confidence.
func (s Samples) Interval() (low, high float64) {
	if len(s) == 0 {
		return math.NaN(), math.NaN()
	}
	low, high = slices.Min(s), slices.Max(s)
	i := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(s), &benchmath.DefaultThresholds), Confidence)
	return max(low, i.Lo), min(high, i.Hi)
}

// MeanInterval holds the mean of what the figures are of with Confidence, by Student's t. It has no bounds when there are less than two
// figures: one says nothing of how far the next may be from it.
func (s Samples) MeanInterval() (low, high float64) {
	if len(s) < 2 {
		return math.Inf(-1), math.Inf(1)
	}
	i := benchmath.AssumeNormal.Summary(benchmath.NewSample(slices.Clone(s), &benchmath.DefaultThresholds), Confidence)
	return i.Lo, i.Hi
}

// ClaimInterval is the one that claims are judged by: Interval, which no round that others disturbed moves, and of so few figures that this
// has less than its Confidence, MeanInterval.
func (s Samples) ClaimInterval() (low, high float64) {
	if len(s) < fewestOrdered {
		return s.MeanInterval()
	}
	return s.Interval()
}

// fewestOrdered is how many figures have the median between their least and greatest with Confidence: 1 - 2/2^6 is more than that.
const fewestOrdered = 6

// UnsteadySpread is how wide the interval of a row's figures may be, as a share of the median, before the row is marked.
const UnsteadySpread = 0.15

// Unsteady reports whether the median is not known well.
func (s Samples) Unsteady() bool {
	return s.WiderThan(UnsteadySpread)
}

// WiderThan reports whether the interval is wider than a share of the median.
func (s Samples) WiderThan(share float64) bool {
	low, high := s.Interval()
	return len(s) > 1 && high-low > share*s.Median()
}
