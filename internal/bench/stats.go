package bench

import (
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// series is one figure, taken once a round.
type series []float64

// median is the middle figure, of an even number the mean of the two in the middle; NaN when there is none.
func (s series) median() float64 {
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

// spread is the difference between the largest figure and the smallest.
func (s series) spread() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s) - slices.Min(s)
}

// each is what fn makes of the figures.
func (s series) each(fn func(float64) float64) (all series) {
	for _, v := range s {
		all = append(all, fn(v))
	}
	return all
}

// positive is the figures above 0.
func (s series) positive() (all series) {
	for _, v := range s {
		if v > 0 {
			all = append(all, v)
		}
	}
	return all
}

// by is the figures as shares of another's of the same rounds, as far as both were taken.
func (s series) by(other series) (all series) {
	for i := range min(len(s), len(other)) {
		if other[i] > 0 {
			all = append(all, s[i]/other[i])
		}
	}
	return all
}

// metric is the median as a result, with the figures that it is of.
func (s series) metric(unit string) lab.Metric {
	return lab.Metric{Value: s.median(), Unit: unit, Spread: s.spread(), Samples: s}
}

// unsteadySpread is the share of the median by which a row's figures may differ before the row is marked.
const unsteadySpread = 0.15

// unsteady reports whether the rounds differ by more than is usual on a machine that does nothing else.
func (s series) unsteady() bool {
	return len(s) > 1 && s.spread() > unsteadySpread*s.median()
}

// inTurn is the cases, in the other direction in every other round: what goes on from one to the next, as in a warm
// cache, goes on to both neighbors.
func inTurn[T any](cases []T, round int) []T {
	turn := slices.Clone(cases)
	if round%2 == 1 {
		slices.Reverse(turn)
	}
	return turn
}

// minus is the differences to other figures, round by round.
func (s series) minus(other series) series {
	out := make(series, min(len(s), len(other)))
	for i := range out {
		out[i] = s[i] - other[i]
	}
	return out
}
