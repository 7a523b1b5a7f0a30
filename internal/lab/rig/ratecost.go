package rig

import (
	"fmt"
	"slices"
)

// costHead is the columns of a table of costs.
var costHead = []string{"", "article kpps", "article's cost", "Mpps", "min .. max", "ns/packet", "cost", ""}

// costCells are a row of a table of costs as text.
func (t *RateTable) costCells(r *Rate) []string {
	cells := make([]string, len(costHead))
	cells[0], cells[len(cells)-1] = r.Label, r.remarks()
	if r.Article != nil {
		cells[1], cells[2] = fmt.Sprintf("%.0f", r.Article.Kpps), r.Article.Cost
	}
	if !r.Measured() {
		return cells
	}
	copy(cells[3:], r.figures())
	if times, ok := share(t.Base, r); ok {
		cells[6] = fmt.Sprintf("%+.0f%%", 100*(times-1))
	}
	if r == t.Base {
		cells[6] = "baseline"
	}
	return cells
}

// ofArticle leaves out the columns of an article if no row is of one.
func (t *RateTable) ofArticle(cells []string) []string {
	if slices.ContainsFunc(t.Rows, func(r *Rate) bool { return r.Article != nil }) {
		return cells
	}
	return slices.Delete(slices.Clone(cells), 1, 3)
}

// ArticleRow is what the article says of a case.
type ArticleRow struct {
	Kpps float64
	Cost string // in its own words
}
