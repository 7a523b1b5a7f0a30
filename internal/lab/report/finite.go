package report

import (
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// KeepFinite removes NaN and infinity from an outcome, because JSON has neither. They are medians of figures that were not measured because the
// experiment ended early.
func (o *Outcome) KeepFinite() {
	o.Bars = slices.DeleteFunc(o.Bars, func(b *Bar) bool { return !finite(b.Value) })
	for i := range o.Results {
		r := &o.Results[i]
		r.Metrics = slices.DeleteFunc(r.Metrics, func(m lab.Metric) bool { return !finite(m.Value, m.Spread) })
	}
	for i := range o.Curves {
		c := &o.Curves[i]
		c.Points = slices.DeleteFunc(c.Points, func(p [2]float64) bool { return !finite(p[:]...) })
	}
}

func finite(values ...float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}
