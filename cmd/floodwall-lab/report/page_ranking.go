// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ranking is bars beside their labels. A drawing would need space for the labels, which are wider than a phone. So the page sets the labels as text,
// and only the bars are drawn, in thousandths of their width.
type ranking struct {
	Ranking
	Bars []bar
}

// bar is a row of a ranking, or one of the two in a comparison.
type bar struct {
	Label     string
	Text      string  // the figure
	Value     float64 // in thousandths
	Low, High float64 // in thousandths: the lowest and the highest round
	Limit     float64 // in thousandths: the upper limit; 0: unknown
	Own       bool
	AtLimit   bool // this row is the limit itself
	Unsteady  bool
}

// newRanking lays out a ranking. It leaves space for bars beyond the limit.
func newRanking(r Ranking) ranking {
	most, limit := 0.0, 0.0
	for _, row := range r.Rows {
		most = max(most, row.Most)
		if row.Label == r.Limit {
			limit = row.Value
		}
	}
	scale := 1000 / most
	all := ranking{Ranking: r}
	for _, row := range r.Rows {
		all.Bars = append(all.Bars, bar{
			Label: row.Label, Text: pageFigure(row.Value), Value: scale * row.Value, Low: scale * row.Least, High: scale * row.Most,
			Limit: scale * limit, Own: row.Own(), AtLimit: row.Label == r.Limit, Unsteady: row.Unsteady,
		})
	}
	return all
}

// pageFigure returns a number with three significant digits, or with all digits before the point.
func pageFigure(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return fmt.Sprintf("%.2f", v)
}

// comparison is the two bars of a comparison, with their text.
type comparison struct {
	Bars []bar
	Text string
}

// compare lays out a comparison. The limit takes the whole width, unless a bar exceeds it.
func compare(c Comparison) comparison {
	scale := 1000 / max(c.Own, c.Rival, c.Limit)
	drawn := func(label string, v float64) bar {
		return bar{Label: label, Text: Choice(v > 0, pageFigure(v), "not measured"), Value: scale * v, Limit: scale * c.Limit, Unsteady: c.Unsteady && v > 0}
	}
	own := drawn("floodwall", c.Own)
	own.Own = true
	var text []string
	if c.Rival > 0 {
		text = append(text, fmt.Sprintf("%s × %s", pageFigure(c.Own/c.Rival), c.Tool))
	}
	if c.Limit > 0 {
		text = append(text, fmt.Sprintf("%.0f%% of the limit, %s (%s)", 100*c.Own/c.Limit, c.Bound, pageFigure(c.Limit)))
	}
	return comparison{[]bar{own, drawn(c.Tool, c.Rival)}, strings.Join(text, "; ")}
}

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
