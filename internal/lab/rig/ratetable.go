package rig

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
)

// publish adds the table, its results and its bars to the outcome.
func (t *RateTable) publish(o *report.Outcome) {
	table := &report.Table{Title: t.Title + t.cores.suffix(), Head: t.head(), Notes: t.Notes}
	experiment := o.Name + t.cores.prefix()
	for _, r := range t.Rows {
		o.Bars = append(o.Bars, t.bars(experiment, r)...)
		o.Results = append(o.Results, t.result(experiment, r))
		table.AddRow(t.cells(r)...)
		r.remark(table)
	}
	o.Tables = append(o.Tables, table)
	o.Ranked = append(o.Ranked, t.ranking())
}

// keep leaves out the rows that are not wanted, but for those that others are compared with.
func (t *RateTable) keep(wanted func(row string) bool) {
	t.Rows = slices.DeleteFunc(t.Rows, func(r *Rate) bool {
		return r != t.least && r != t.Base && r != t.Rival && !wanted(r.Name)
	})
}

// head is the columns.
func (t *RateTable) head() []string {
	if t.Base != nil {
		return t.ofArticle(costHead)
	}
	head := []string{"", "Mpps", "ns/packet", "of least", "from .. to"}
	if t.Rival != nil {
		head = append(head, "x "+t.Rival.Label)
	}
	return append(head, "")
}

// cells are a row as text.
func (t *RateTable) cells(r *Rate) []string {
	if t.Base != nil {
		return t.ofArticle(t.costCells(r))
	}
	cells := make([]string, len(t.head()))
	cells[0], cells[len(cells)-1] = r.Label, r.remarks()
	if !r.Measured() {
		return cells
	}
	figures := r.figures()
	cells[1], cells[2] = figures[0], figures[2]
	if of := t.ofLeast(r); len(of) > 0 {
		low, high := of.Interval()
		cells[3], cells[4] = fmt.Sprintf("%.2f", of.Median()), fmt.Sprintf("%.2f .. %.2f", low, high)
	}
	if t.Rival != nil {
		cells[5] = shareText(r, t.Rival)
	}
	return cells
}

// ofLeast is a row's rates as shares of what the least program took in the same rounds.
func (t *RateTable) ofLeast(r *Rate) report.Samples {
	if len(r.least) > 0 {
		return r.Rounds.By(r.least).Positive()
	}
	return shares(r, t.least)
}

// figures are rate, spread, and time per packet as text.
func (r *Rate) figures() []string {
	mpps := func(pps float64) string { return fmt.Sprintf("%.2f", pps/1e6) }
	arrived := r.Arrived()
	median := arrived.Median()
	return []string{
		mpps(median), mpps(slices.Min(arrived)) + " .. " + mpps(slices.Max(arrived)), fmt.Sprintf("%.1f", 1e9/median),
	}
}

// shares are a row's rates as shares of another's: in the same rounds where both took part in the same, else of its median.
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

// share is their median; false when there is none.
func share(r, limit *Rate) (float64, bool) {
	s := shares(r, limit)
	return s.Median(), len(s) > 0
}

func shareText(r, limit *Rate) string {
	if v, ok := share(r, limit); ok {
		return fmt.Sprintf("%.2f", v)
	}
	return ""
}

// bars compare the row with what it has to reach, with a core each.
func (t *RateTable) bars(experiment string, r *Rate) (bars []*report.Bar) {
	if t.cores == OneCore || !r.Measured() {
		return nil
	}
	if of := t.ofLeast(r); r.Share > 0 && len(of) > 0 {
		bars = append(bars, report.AtLeast(experiment+"/"+r.Name+" of least", of.Median(), r.Share))
	}
	if times, ok := share(r, t.Rival); r.Times > 0 && ok {
		bars = append(bars, report.AtLeast(experiment+"/"+r.Name+" x "+t.Rival.Name, times, r.Times))
	}
	return bars
}

// Measured reports whether there are figures that can be divided by.
func (r *Rate) Measured() bool { return len(r.Arrived()) > 0 }

// Unsteady reports whether the figures are doubtful: those that are shares of the same rounds, as such.
func (r *Rate) Unsteady() bool {
	if len(r.least) > 0 {
		return r.Rounds.By(r.least).Positive().Unsteady()
	}
	return 2*r.disturbed > len(r.Rounds) || 2*r.failed() >= len(r.Rounds) || r.Arrived().Unsteady()
}

// remarks is why there is no figure, or short signs that notes below the table explain.
func (r *Rate) remarks() (marks string) {
	if len(r.Rounds) > 0 && !r.Measured() {
		return "nothing arrived: others had the CPUs"
	}
	if !r.Measured() {
		return r.Missing
	}
	if r.Unsteady() {
		marks += "~"
	}
	if r.failed() > 0 {
		marks += "!"
	}
	return marks
}

// remark explains the row's marks.
func (r *Rate) remark(t *report.Table) {
	if r.Unsteady() {
		t.AddNote("~ unsteady: the interval is wider than %.0f%% of the figure, or others had the receiving CPU.", 100*report.UnsteadySpread)
	}
	if r.Measured() && r.failed() > 0 {
		t.AddNote("! nothing arrived in %d of %d rounds, which are left out: others had the CPUs.", r.failed(), len(r.Rounds))
	}
}

// result is the row for programs.
func (t *RateTable) result(experiment string, r *Rate) lab.Result {
	res := lab.Result{Name: experiment + "/" + r.Name, Runs: len(r.Rounds), Note: r.remarks()}
	if !r.Measured() {
		res.Metrics = r.Extra
		return res
	}
	add := func(unit string, figures report.Samples) {
		if len(figures) > 0 {
			res.Metrics = append(res.Metrics, figures.Metric(unit))
		}
	}
	add("ns/op", r.Arrived().Each(func(pps float64) float64 { return 1e9 / pps }))
	add("Mpps", r.Arrived().Each(func(pps float64) float64 { return pps / 1e6 }))
	add("of-least", t.ofLeast(r))
	add(t.By, shares(t.Base, r))
	add("x-rival", shares(r, t.Rival))
	res.Metrics = append(res.Metrics, r.Extra...)
	return res
}
