// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// linearTicks places about this number of round numbers on an axis.
type linearTicks int

// Ticks returns the numbers between two bounds.
func (most linearTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := roundStep((high - low) / float64(most))
	for v := math.Ceil(low/step) * step; v <= high*(1+1e-9); v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: short(v)})
	}
	return ticks
}

// roundStep returns the least number of the form 1, 2 or 5 times a power of ten that is at least v.
func roundStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= v*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// logTicks places at most about this number of numbers on a logarithmic axis: powers of ten, and numbers between them if there is space.
type logTicks int

// Ticks returns the numbers between two bounds, both above 0.
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

// units are the units that shorten numbers.
var units = []struct {
	from float64
	sign string
}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}

// short returns a number in few characters, for example 2.5M.
func short(v float64) string {
	for _, u := range units {
		if math.Abs(v) >= u.from {
			return number(v/u.from) + u.sign
		}
	}
	return number(v)
}

// number returns a number without rounding errors of the steps.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
