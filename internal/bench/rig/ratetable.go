package rig

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// publish adds the table, its results and its bars to the outcome.
func (t *RateTable) publish(o *report.Outcome) {
	table := &report.Table{Title: t.Title + t.cores.suffix(), Head: t.head(), Notes: t.Notes}
	experiment := o.Name + t.cores.prefix()
	for _, r := range t.Rows {
		bars := t.bars(experiment, r)
		for _, bar := range bars {
			o.Bars = append(o.Bars, bar.Bar)
		}
		o.Results = append(o.Results, t.result(experiment, r))
		table.AddRow(t.cells(r, bars)...)
		r.remark(table)
	}
	o.Tables = append(o.Tables, table)
	o.Ranked = append(o.Ranked, t.ranking())
}

// head is the columns. Bars and the reference offer are for a source with a core of its own.
func (t *RateTable) head() []string {
	if t.Base != nil {
		return costHead
	}
	head := []string{"", "Mpps", "min .. max", "ns/packet", "of empty", "of one octet"}
	if t.cores == twoCores {
		head = append(head, "bar, of empty", "of 7 Mpps", "bar, of 7 Mpps")
	}
	if t.Rival != nil {
		head = append(head, "x "+t.Rival.Label)
		if t.cores == twoCores {
			head = append(head, "bar, x")
		}
	}
	return append(head, "")
}

// cells are a row as text.
func (t *RateTable) cells(r *Rate, bars []rateBar) []string {
	if t.Base != nil {
		return t.costCells(r, bars)
	}
	cells := make([]string, len(t.head()))
	cells[0], cells[len(cells)-1] = r.Label, r.remarks()
	if !r.Measured() {
		return cells
	}
	copy(cells[1:], r.figures())
	cells[4], cells[5] = shareText(r, t.empty), shareText(r, t.touch)
	put := func(column, text string) {
		if i := slices.Index(t.head(), column); i >= 0 {
			cells[i] = text
		}
	}
	if v, ok := referenceShare(r, t.empty); ok {
		put("of 7 Mpps", fmt.Sprintf("%.2f", v))
	}
	if t.Rival != nil {
		put("x "+t.Rival.Label, shareText(r, t.Rival))
	}
	for _, bar := range bars {
		put(bar.column, bar.String())
	}
	return cells
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

// shares are a row's rates as shares of another's in the same rounds, of which both measured something.
func shares(r, limit *Rate) report.Samples {
	if r == nil || limit == nil {
		return nil
	}
	return r.Rounds.By(limit.Rounds).Positive()
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

// referenceShares are what a row takes of the reference offer, as shares of what the limit takes of it.
func referenceShares(r, limit *Rate) report.Samples {
	if limit == nil {
		return nil
	}
	return r.reference.By(limit.reference).Positive()
}

// referenceShare is their median; false when there is none.
func referenceShare(r, limit *Rate) (float64, bool) {
	s := referenceShares(r, limit)
	return s.Median(), len(s) > 0
}

// rateBar is a bar with the column of the table that shows it.
type rateBar struct {
	*report.Bar
	column string
}

// bars compare the row with what it has to reach: of all that the limit takes, of the reference offer, and of the
// rival's rate.
func (t *RateTable) bars(experiment string, r *Rate) (bars []rateBar) {
	if t.cores == OneCore {
		return nil
	}
	add := func(column, what string, value float64, ok bool, bound float64) {
		if ok && bound > 0 {
			bars = append(bars, rateBar{report.AtLeast(experiment+"/"+r.Name+what, value, bound), column})
		}
	}
	full, ok := share(r, t.empty)
	add("bar, of empty", " of empty", full, ok, r.Least)
	reference, both := referenceShare(r, t.empty)
	add("bar, of 7 Mpps", " of 7 Mpps", reference, ok && both, r.Least)
	if t.Rival != nil {
		times, ok := share(r, t.Rival)
		add("bar, x", " x "+t.Rival.Name, times, ok, r.Times)
	}
	return bars
}

// Measured reports whether there are figures that can be divided by.
func (r *Rate) Measured() bool { return len(r.Arrived()) > 0 }

// Unsteady reports whether the figures are doubtful.
func (r *Rate) Unsteady() bool {
	return r.disturbed > 0 || 2*r.failed() >= len(r.Rounds) || r.Arrived().Unsteady()
}

// fromSource reports whether most rounds say how fast the source is, not the receiver.
func (r *Rate) fromSource() bool { return 2*r.starved > len(r.Arrived()) }

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
	if r.fromSource() {
		marks += "^"
	}
	if r.failed() > 0 {
		marks += "!"
	}
	return marks
}

// remark explains the row's marks.
func (r *Rate) remark(t *report.Table) {
	if r.Unsteady() {
		t.AddNote("~ unsteady: others had the receiving CPU, or the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread)
	}
	if r.fromSource() {
		t.AddNote("^ the source was slower than the receiver: the figure is a lower bound.")
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
	add("of-empty", shares(r, t.empty))
	add("of-one-octet", shares(r, t.touch))
	add("x-raw-drop", shares(t.Base, r))
	add("of-7Mpps", referenceShares(r, t.empty))
	add("x-rival", shares(r, t.Rival))
	res.Metrics = append(res.Metrics, r.Extra...)
	return res
}
