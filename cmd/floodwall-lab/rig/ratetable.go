package rig

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// ArticleRow contains the article's figures for a case.
type ArticleRow struct {
	Kpps float64
	Cost string // in the article's wording
}

// The units of the figures of rows. The share of the base is an additional figure; its unit is RateTable.By.
const (
	timePer = "ns/op"
	mpps    = "Mpps"
	ofLeast = "of-least"
	xRival  = "x-rival"
)

// publish adds the table, its results, its bars and its ranking to the outcome.
func (t *RateTable) publish(o *report.Outcome) {
	out := &Table{
		Title: t.Title + t.cores.suffix(), Prefix: t.cores.prefix(), Results: []string{timePer, mpps, ofLeast, t.By, xRival}, Notes: t.Notes,
		Marks:   []Mark{{Sign: "nothing arrived: others had the CPUs", On: func(r *Row) bool { return len(r.Figure(mpps)) == 0 }}},
		Ranking: &Ranking{Title: t.Title + t.cores.suffix(), Unit: mpps, Figure: mpps, Per: 1},
	}
	if t.least != nil {
		out.Ranking.Limit = t.least.Name
	}
	rates := map[*Row]*Rate{}
	for _, r := range t.Rows {
		row := t.row(r)
		rates[row], out.Rows = r, append(out.Rows, row)
	}
	out.Columns = t.columns(rates)
	out.Marks = append(out.Marks, Mark{
		Sign: "~", On: func(r *Row) bool { return rates[r].Measured() && rates[r].Unsteady() },
		Note: fmt.Sprintf("~ unsteady: the interval is wider than %.0f%% of the figure, or others had the receiving CPU.", 100*report.UnsteadySpread),
	})
	for _, row := range out.Rows {
		if r := rates[row]; r.Measured() && r.failed() > 0 {
			out.Marks = append(out.Marks, Mark{
				Sign: "!", On: func(other *Row) bool { return other == row },
				Note: fmt.Sprintf("! nothing arrived in %d of %d rounds, which are left out: others had the CPUs.", r.failed(), len(r.Rounds)),
			})
		}
	}
	out.Publish(o)
}

// row returns a rate as a row of a table: its figures by their units, and its goals with a core each.
func (t *RateTable) row(r *Rate) *Row {
	row := &Row{Name: r.Name, Label: r.Label, Missing: r.Missing, Extra: r.Extra, Rounds: make([]Reading, len(r.Rounds))}
	for i := range row.Rounds {
		row.Rounds[i] = Reading{}
	}
	for unit, figures := range map[string]report.Samples{
		timePer: r.Arrived().Each(func(pps float64) float64 { return 1e9 / pps }), mpps: r.Arrived().Each(func(pps float64) float64 { return pps / 1e6 }),
		ofLeast: t.ofLeast(r), t.By: shares(t.Base, r), xRival: shares(r, t.Rival),
	} {
		if !r.Measured() {
			break
		}
		for i, v := range figures {
			if i < len(row.Rounds) {
				row.Rounds[i][unit] = v
			}
		}
	}
	if t.cores != twoCores {
		return row
	}
	if r.Share > 0 {
		row.Goals = append(row.Goals, Goal{Unit: ofLeast, What: "of least", Bound: r.Share})
	}
	if r.Times > 0 && t.Rival != nil {
		row.Goals = append(row.Goals, Goal{Unit: xRival, What: "x " + t.Rival.Name, Bound: r.Times})
	}
	return row
}

// columns returns the columns of a table of costs, or of shares of the smallest program's rate.
func (t *RateTable) columns(rates map[*Row]*Rate) []Column {
	rate, per := Column{Head: mpps, Unit: mpps, Show: Digits(2, 1)}, Column{Head: "ns/packet", Unit: mpps, Show: func(s report.Samples) string { return fmt.Sprintf("%.1f", 1e3/s.Median()) }}
	if t.Base != nil {
		return append(t.articleColumns(rates), rate, Column{Head: "min .. max", Unit: mpps, Show: Range(2, 1)}, per,
			Column{Head: "cost", Text: func(r *Row) string { return t.costText(rates[r]) }})
	}
	all := []Column{rate, per, {Head: "of least", Unit: ofLeast, Show: Digits(2, 1)}, {Head: "from .. to", Unit: ofLeast, Show: func(s report.Samples) string {
		low, high := s.Interval()
		return fmt.Sprintf("%.2f .. %.2f", low, high)
	}}}
	if t.Rival != nil {
		all = append(all, Column{Head: "x " + t.Rival.Label, Unit: xRival, Show: Digits(2, 1)})
	}
	return all
}

// articleColumns returns the columns of an article's figures, if a row has such figures.
func (t *RateTable) articleColumns(rates map[*Row]*Rate) []Column {
	if !slices.ContainsFunc(t.Rows, func(r *Rate) bool { return r.Article != nil }) {
		return nil
	}
	of := func(text func(*ArticleRow) string) func(*Row) string {
		return func(r *Row) string {
			if a := rates[r].Article; a != nil {
				return text(a)
			}
			return ""
		}
	}
	return []Column{
		{Head: "article kpps", Text: of(func(a *ArticleRow) string { return fmt.Sprintf("%.0f", a.Kpps) })},
		{Head: "article's cost", Text: of(func(a *ArticleRow) string { return a.Cost })},
	}
}

// costText returns the cost of a row above the base.
func (t *RateTable) costText(r *Rate) string {
	times := shares(t.Base, r)
	switch {
	case r == t.Base && r.Measured():
		return "baseline"
	case len(times) == 0:
		return ""
	}
	return fmt.Sprintf("%+.0f%%", 100*(times.Median()-1))
}

// keep removes the rows that are not wanted. It keeps the rows that others are compared with.
func (t *RateTable) keep(wanted func(row string) bool) {
	t.Rows = slices.DeleteFunc(t.Rows, func(r *Rate) bool {
		return r != t.least && r != t.Base && r != t.Rival && !wanted(r.Name)
	})
}

// ofLeast returns a row's rates as shares of the smallest program's rates in the same rounds.
func (t *RateTable) ofLeast(r *Rate) report.Samples {
	if len(r.least) > 0 {
		return r.Rounds.By(r.least).Positive()
	}
	return shares(r, t.least)
}

// shares returns a row's rates as shares of another row's rates. If both were measured in the same rounds, each rate is divided by the other row's
// rate of the round, else by the other row's median.
func shares(r, limit *Rate) report.Samples {
	switch {
	case r == nil || limit == nil:
		return nil
	case len(r.Rounds) == len(limit.Rounds):
		return r.Rounds.By(limit.Rounds).Positive()
	case !limit.Measured():
		return nil
	}
	median := limit.Arrived().Median()
	return r.Arrived().Each(func(pps float64) float64 { return pps / median })
}

// Measured reports whether the row has figures, so that others can be divided by them.
func (r *Rate) Measured() bool { return len(r.Arrived()) > 0 }

// Unsteady reports whether the figures are doubtful. For rows that were measured together with the smallest program, it judges the shares of the same
// rounds.
func (r *Rate) Unsteady() bool {
	if len(r.least) > 0 {
		return r.Rounds.By(r.least).Positive().Unsteady()
	}
	return 2*r.disturbed > len(r.Rounds) || 2*r.failed() >= len(r.Rounds) || r.Arrived().Unsteady()
}
