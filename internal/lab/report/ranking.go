package report

import (
	"slices"
	"strings"
)

// Ranking contains one figure of each row of a table, for a chart of bars.
type Ranking struct {
	Title string `json:"title"` // of the table
	Unit  string `json:"unit"`
	Limit string `json:"limit,omitempty"` // label of the row that no other can exceed; "": there is none
	Rows  []Rank `json:"rows"`
}

// Rank is a row of a ranking: the median of the rounds, the lowest and the highest figure.
type Rank struct {
	Label    string  `json:"label"`
	Value    float64 `json:"value"`
	Least    float64 `json:"least"`
	Most     float64 `json:"most"`
	Unsteady bool    `json:"unsteady,omitempty"`
}

// Own reports whether the row is Floodwall's.
func (r Rank) Own() bool { return strings.Contains(r.Label, "floodwall") }

// Add adds a row, unless the row has no figures. The figures are divided by per.
func (r *Ranking) Add(label string, figures Samples, per float64, unsteady bool) {
	if !(figures.Median() > 0) {
		return
	}
	r.Rows = append(r.Rows, Rank{label, figures.Median() / per, slices.Min(figures) / per, slices.Max(figures) / per, unsteady})
}
