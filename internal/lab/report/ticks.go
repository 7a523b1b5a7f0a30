package report

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// linearTicks puts about so many numbers on an axis: round ones.
type linearTicks int

// Ticks are the numbers between two bounds.
func (most linearTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := roundStep((high - low) / float64(most))
	for v := math.Ceil(low/step) * step; v <= high*(1+1e-9); v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: short(v)})
	}
	return ticks
}

// roundStep is the least of 1, 2 and 5 times a power of ten that is no less than v.
func roundStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= v*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// logTicks puts at most about so many numbers on a logarithmic axis: powers of ten, and what is between them as far as
// there is space.
type logTicks int

// Ticks are the numbers between two bounds, both above 0.
func (most logTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	decades := math.Log10(high / low)
	within := []float64{1}
	if 3*decades <= float64(most) {
		within = []float64{1, 2, 5}
	}
	every := max(1, int(math.Ceil(decades/float64(most))))
	for power := math.Floor(math.Log10(low)); power <= math.Log10(high); power++ {
		for _, factor := range within {
			v := factor * math.Pow(10, power)
			if v < low || v > high {
				continue
			}
			tick := plot.Tick{Value: v}
			if int(power)%every == 0 {
				tick.Label = short(v)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// units are what numbers are shortened by.
var units = []struct {
	from float64
	sign string
}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}

// short is a number in few characters: 2.5M.
func short(v float64) string {
	for _, u := range units {
		if math.Abs(v) >= u.from {
			return number(v/u.from) + u.sign
		}
	}
	return number(v)
}

// number is a number without the dust that steps leave on it.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
