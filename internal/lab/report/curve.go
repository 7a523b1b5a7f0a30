package report

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
)

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
