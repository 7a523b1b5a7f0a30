package bench

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
)

// Curve is a figure over another, for charts.
type Curve struct {
	Name   string       `json:"name"` // of the result
	X      string       `json:"x"`    // unit of the first figure of each point
	Y      string       `json:"y"`
	Points [][2]float64 `json:"points"`
}

// curveTable is curves with the same first figures as a table, which a line of blocks draws. head is those figures as
// people read them, per divides the second ones.
func curveTable(title string, head, labels []string, curves []Curve, per float64) *Table {
	t := &Table{Title: title, Head: append(append([]string{""}, head...), "", "")}
	most := 0.0
	for _, c := range curves {
		for _, p := range c.Points {
			most = max(most, p[1])
		}
	}
	for i, c := range curves {
		row := []string{labels[i]}
		var figures []float64
		for _, p := range c.Points {
			row = append(row, fmt.Sprintf("%.0f", p[1]/per))
			figures = append(figures, p[1])
		}
		t.row(append(row, "", lab.Spark(figures, most))...)
	}
	return t
}
