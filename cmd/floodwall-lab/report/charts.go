// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/floodwall/floodwall/internal/lab"
)

// charts returns the charts of an experiment: its curves, grouped by the name of their chart, and its series over time, grouped by unit.
func charts(o *Outcome) (all []chart) {
	into := func(c chart) *chart {
		i := slices.IndexFunc(all, func(other chart) bool { return other.Title == c.Title })
		if i < 0 {
			all = append(all, c)
			i = len(all) - 1
		}
		return &all[i]
	}
	looks := looks{}
	for _, c := range o.Curves {
		on := into(chart{Title: c.Chart, X: unit(c.X), Y: unit(c.Y), LogX: c.LogX, LogY: c.LogY})
		on.add(c.Label, looks.of(c.Label), c.Points)
	}
	for _, s := range o.Series {
		points := make([][2]float64, len(s.Values))
		for i, v := range s.Values {
			points[i] = [2]float64{float64(i+1) * s.Seconds, v}
		}
		into(chart{Title: unit(s.Unit) + " over time", X: "seconds"}).add(s.Label, looks.of(s.Label), points)
	}
	return slices.DeleteFunc(all, func(c chart) bool { return len(c.Lines) == 0 })
}

// unit returns a unit in the form that people write.
func unit(name string) string {
	switch name {
	case "pps":
		return "packets per second"
	case "req/s":
		return "requests per second"
	case "ACKs-dropped/s":
		return "ACKs dropped per second"
	}
	return strings.Replace(name, "/s", " per second", 1)
}

// add adds a line of the points that can be drawn. If there are none, it adds nothing.
func (c *chart) add(label string, look int, points [][2]float64) {
	l := line{Label: label, Look: look, Own: isOwn(label)}
	for _, p := range points {
		if c.finite(p[0], p[1]) {
			l.Points = append(l.Points, plotter.XY{X: p[0], Y: p[1]})
		}
	}
	if len(l.Points) > 0 {
		c.Lines = append(c.Lines, l)
	}
}

func isOwn(label string) bool { return strings.Contains(label, "floodwall") }

// looks gives each label of an experiment a look, which is the same in all of its charts.
type looks map[string]int

// The colors of Floodwall, of the limit, and of the others.
var (
	ownColors   = []int{0, 6, 5}
	limitColors = []int{7 + colors} // dashed
	otherColors = []int{1, 2, 3, 4}
)

// of returns the look of a label: the first unused color of its kind, or the same colors with other dashes when all are used.
func (l looks) of(label string) int {
	if look, ok := l[label]; ok {
		return look
	}
	kind := otherColors
	switch {
	case isOwn(label):
		kind = ownColors
	case strings.Contains(label, "limit"):
		kind = limitColors
	}
	taken := slices.Collect(maps.Values(l))
	for n := 0; ; n++ {
		look := kind[n%len(kind)] + colors*(n/len(kind))
		if !slices.Contains(taken, look) {
			l[label] = look
			return look
		}
	}
}

// Curve is a figure over another, for charts. Curves of the same chart are drawn together, on the axes of the first curve.
type Curve struct {
	Name   string       `json:"name"`            // of the result
	Chart  string       `json:"chart"`           // title of the chart, without the experiment's name
	Label  string       `json:"label"`           // of the line, as people read it
	X      string       `json:"x"`               // unit of the first figure of each point
	Y      string       `json:"y"`               // of the second
	LogX   bool         `json:"log_x,omitempty"` // the axis is logarithmic: points at 0 and below are left out
	LogY   bool         `json:"log_y,omitempty"`
	Points [][2]float64 `json:"points"`
}

// CurveTable returns a table of curves with the same first figures, with a sparkline. The parameter head contains these figures as text. The second
// figures are divided by per.
func CurveTable(title string, head []string, curves []Curve, per float64) *Table {
	t := &Table{Title: title, Head: append(append([]string{""}, head...), "", "")}
	most := 0.0
	for _, c := range curves {
		for _, p := range c.Points {
			most = max(most, p[1])
		}
	}
	for _, c := range curves {
		row := []string{c.Label}
		var figures []float64
		for _, p := range c.Points {
			row = append(row, fmt.Sprintf("%.0f", p[1]/per))
			figures = append(figures, p[1])
		}
		t.AddRow(append(row, "", lab.Spark(figures, most))...)
	}
	return t
}
