// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Table contains rows, and how their figures are published.
type Table struct {
	Title   string
	Head    string // of the first column
	Prefix  string // of the rows' names in results, but not in bars
	Doing   string // the current work, shown before the labels of rows to people who wait
	Rows    []*Row
	Results []string // the units of the figures in results, in their order; none: another table has the rows' results and bars
	Shares  []Share  // figures that are divided by others
	Columns []Column // all but the first, the label, and the last, the remarks
	Bare    bool     // the table has no remarks
	Marks   []Mark
	Notes   []string
	Ranking *Ranking
	Lanes   int // rows of stage 0 that are taken at the same time; 0: one

	// Disturbed reports whether a round says little and must be repeated; nil: no round is.
	Disturbed func(Reading) bool
	// Above returns the cells of a line above a line of rows, for example an article's figures. If the function is nil, or its result has no cells,
	// there is no such line.
	Above func(line []*Row) []string
	// After adds more to the outcome, after the table; nil: nothing.
	After func(*report.Outcome)
	// Before is called before the rows of a stage in each round; nil: nothing is called.
	Before func(ctx context.Context, round, stage int) error
}

// Share is a figure of a row divided by a figure of another row, in the same rounds. If the rows have different numbers of rounds, the median of the
// other's figures divides.
type Share struct {
	Unit string
	Of   string          // the unit of the row's figure
	Base string          // the unit of the other's figure; "": the same
	By   func(*Row) *Row // returns the other row; nil: there is none
}

// Goal is a bar that a figure has to reach.
type Goal struct {
	Unit  string // of the figure
	What  string // added to the result's name
	Bound float64
	Most  bool // the bound is a maximum
	Worst bool // the greatest value of the rounds counts, not their median

	Unless func(*Row) bool // reports that the figures of the row are too doubtful to be judged; nil: never
}

// Column is a column of the table.
type Column struct {
	Head string
	Unit string // of the figure that it shows
	Show func(report.Samples) string
	Load string            // the load of the row in the line whose figure is shown; "": any
	Text func(*Row) string // the cell, in place of a figure
}

// Mark is a sign for rows whose figures are doubtful, with a note that explains it.
type Mark struct {
	Sign, Note string
	On         func(*Row) bool
}

// Ranking is a chart of the rows by one figure.
type Ranking struct {
	Title, Unit string // of the chart
	Figure      string
	Per         float64
	Limit       string // the name of the row that is the limit; "": there is none
	Label       func(*Row) string
}

// Unsteady returns a mark for rows with a figure that differs much between rounds.
func Unsteady(unit string) Mark {
	return Mark{"~", fmt.Sprintf("~ unsteady: the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread), func(r *Row) bool {
		return r.Figure(unit).Unsteady()
	}}
}

// Find returns the row with a name; nil if there is none.
func (t *Table) Find(name string) *Row {
	if i := slices.IndexFunc(t.Rows, func(r *Row) bool { return r.Name == name }); i >= 0 {
		return t.Rows[i]
	}
	return nil
}

// Other returns the row with a name; nil if there is none, or if it is the row itself.
func (t *Table) Other(r *Row, name string) *Row {
	if o := t.Find(name); o != r {
		return o
	}
	return nil
}

// Figure returns a figure of a row, or a share of Shares.
func (t *Table) Figure(r *Row, unit string) report.Samples {
	i := slices.IndexFunc(t.Shares, func(s Share) bool { return s.Unit == unit })
	if figures := r.Figure(unit); len(figures) > 0 || i < 0 {
		return figures
	}
	s := t.Shares[i]
	by, base := s.By(r), cmp.Or(s.Base, s.Of)
	if by == nil || len(r.Rounds) == len(by.Rounds) {
		return r.share(s.Of, by, base)
	}
	median := by.Figure(base).Median()
	if !(median > 0) {
		return nil
	}
	return r.Figure(s.Of).Each(func(v float64) float64 { return v / median })
}

// Articles returns columns of Row.Article.
func Articles(heads ...string) (columns []Column) {
	for i, head := range heads {
		columns = append(columns, Column{Head: head, Text: func(r *Row) string {
			if i < len(r.Article) {
				return r.Article[i]
			}
			return ""
		}})
	}
	return columns
}

// Publish adds the table to the outcome if the table has a line. It also adds its results, its bars and its ranking. It returns the table as it is
// shown.
func (t *Table) Publish(o *report.Outcome) (shown *report.Table) {
	shown = &report.Table{Title: t.Title, Head: []string{t.Head}, Notes: slices.Clone(t.Notes)}
	for _, c := range t.Columns {
		shown.Head = append(shown.Head, c.Head)
	}
	if !t.Bare {
		shown.Head = append(shown.Head, "")
	}
	for _, r := range t.Rows {
		if len(t.Results) > 0 {
			o.Bars = append(o.Bars, t.bars(o.Name, r)...)
			o.Results = append(o.Results, t.result(o.Name, r))
		}
	}
	for _, line := range t.lines() {
		if t.Above != nil {
			if cells := t.Above(line); len(cells) > 0 {
				shown.AddRow(cells...)
			}
		}
		shown.AddRow(t.cells(line)...)
		for _, m := range t.Marks {
			if slices.ContainsFunc(line, m.On) && m.Note != "" {
				shown.AddNote("%s", m.Note)
			}
		}
	}
	if len(shown.Rows) > 0 {
		o.Tables = append(o.Tables, shown)
	}
	if t.Ranking != nil {
		o.Ranked = append(o.Ranked, t.ranking())
	}
	if t.After != nil {
		t.After(o)
	}
	return shown
}

// lines returns the rows of each line.
func (t *Table) lines() (all [][]*Row) {
	for _, r := range t.Rows {
		i := slices.IndexFunc(all, func(line []*Row) bool { return r.Line != "" && line[0].Line == r.Line })
		switch {
		case r.Hidden:
		case i >= 0:
			all[i] = append(all[i], r)
		default:
			all = append(all, []*Row{r})
		}
	}
	return all
}

// bars returns the goals of a row, for the figures that were measured.
func (t *Table) bars(experiment string, r *Row) (all []*report.Bar) {
	for _, g := range r.Goals {
		figures := t.Figure(r, g.Unit)
		if len(figures) == 0 || g.Unless != nil && g.Unless(r) {
			continue
		}
		name, value := strings.TrimSpace(experiment+"/"+r.Name+" "+g.What), figures.Median()
		if g.Worst {
			value = figures.Longest()
		}
		all = append(all, report.Choice(g.Most, report.AtMost, report.AtLeast)(name, value, g.Bound))
	}
	return all
}

// result returns a row as a result for programs.
func (t *Table) result(experiment string, r *Row) lab.Result {
	out := lab.Result{Name: experiment + "/" + t.Prefix + r.Name, Runs: len(r.Rounds), Note: t.remarks(r)}
	for _, unit := range t.Results {
		if figures := t.Figure(r, unit); len(figures) > 0 {
			out.Metrics = append(out.Metrics, figures.Metric(unit))
		}
	}
	out.Metrics = append(out.Metrics, r.Extra...)
	return out
}

// remarks returns the reason why a row has no figures, or else the signs of its marks.
func (t *Table) remarks(r *Row) (signs string) {
	if len(r.Rounds) == 0 {
		return r.Missing
	}
	for _, m := range t.Marks {
		signs += report.Choice(m.On(r), m.Sign, "")
	}
	return signs
}

// cells formats a line.
func (t *Table) cells(line []*Row) []string {
	cells := []string{line[0].Label}
	for _, c := range t.Columns {
		cells = append(cells, t.cell(c, line))
	}
	if t.Bare {
		return cells
	}
	marks := t.remarks(line[0])
	for _, r := range line[1:] {
		if more := t.remarks(r); !strings.Contains(marks, more) {
			marks += more
		}
	}
	return append(cells, marks)
}

func (t *Table) cell(c Column, line []*Row) string {
	for _, r := range line {
		if c.Load != "" && c.Load != r.Load {
			continue
		}
		if c.Text != nil {
			return c.Text(r)
		}
		if figures := t.Figure(r, c.Unit); len(figures) > 0 {
			return c.Show(figures)
		}
	}
	return ""
}

func (t *Table) ranking() report.Ranking {
	ranking := report.Ranking{Title: t.Ranking.Title, Unit: t.Ranking.Unit}
	for _, r := range t.Rows {
		label := r.Label
		if t.Ranking.Label != nil {
			label = t.Ranking.Label(r)
		}
		if label == "" {
			continue
		}
		before := len(ranking.Rows)
		ranking.Add(label, t.Figure(r, t.Ranking.Figure), t.Ranking.Per, len(r.Rounds) > 0 && strings.Contains(t.remarks(r), "~"))
		if r.Name == t.Ranking.Limit && len(ranking.Rows) > before {
			ranking.Limit = label
		}
	}
	return ranking
}

// Digits shows the median of figures divided by per, with this number of decimal places.
func Digits(digits int, per float64) func(report.Samples) string {
	return func(s report.Samples) string { return fmt.Sprintf("%.*f", digits, s.Median()/per) }
}

// Range shows the smallest and the largest of figures, divided by per, with this number of decimal places.
func Range(digits int, per float64) func(report.Samples) string {
	return func(s report.Samples) string {
		return fmt.Sprintf("%.*f .. %.*f", digits, slices.Min(s)/per, digits, s.Longest()/per)
	}
}

// Worst shows the largest of figures, divided by per, with this number of decimal places.
func Worst(digits int, per float64) func(report.Samples) string {
	return func(s report.Samples) string { return fmt.Sprintf("%.*f", digits, s.Longest()/per) }
}

// Percent shows the median of shares.
func Percent(s report.Samples) string { return fmt.Sprintf("%.2f%%", 100*s.Median()) }

// PercentRange shows the smallest and the largest of shares.
func PercentRange(s report.Samples) string {
	return fmt.Sprintf("%.2f%% .. %.2f%%", 100*slices.Min(s), 100*s.Longest())
}

// Millis shows the median of nanoseconds as milliseconds.
func Millis(s report.Samples) string { return lab.Millis(time.Duration(s.Median())) }

// Count shows the median of numbers.
func Count(s report.Samples) string { return report.CountText(int(s.Median())) }
