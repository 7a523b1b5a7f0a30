package page

import (
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/floodwall/floodwall/internal/bench"
)

// charts are those of an experiment: its curves by the chart that they name, and its series over time by their unit.
func charts(o *bench.Outcome) (all []chart) {
	into := func(c chart) *chart {
		i := slices.IndexFunc(all, func(other chart) bool { return other.Title == c.Title })
		if i < 0 {
			all = append(all, c)
			i = len(all) - 1
		}
		return &all[i]
	}
	for _, c := range o.Curves {
		into(chart{Title: c.Chart, X: unit(c.X), Y: unit(c.Y), LogX: c.LogX, LogY: c.LogY}).add(c.Label, c.Points)
	}
	for _, s := range o.Series {
		points := make([][2]float64, len(s.Values))
		for i, v := range s.Values {
			points[i] = [2]float64{float64(i+1) * s.Seconds, v}
		}
		into(chart{Title: unit(s.Unit) + " over time", X: "seconds", Y: unit(s.Unit)}).add(s.Label, points)
	}
	return slices.DeleteFunc(all, func(c chart) bool { return len(c.Lines) == 0 })
}

// unit is one as people write it.
func unit(name string) string {
	switch name {
	case "pps":
		return "packets per second"
	case "req/s":
		return "requests per second"
	}
	return strings.Replace(name, "/s", " per second", 1)
}

// add adds a line, of the points that can be drawn; when there is none, it adds nothing.
func (c *chart) add(label string, points [][2]float64) {
	l := line{Label: label, Style: len(c.Lines), Strong: strings.Contains(label, "floodwall")}
	for _, p := range points {
		if c.finite(p[0], p[1]) {
			l.Points = append(l.Points, plotter.XY{X: p[0], Y: p[1]})
		}
	}
	if len(l.Points) > 0 {
		c.Lines = append(c.Lines, l)
	}
}
