package bench

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// publish adds the table, its results and its bars to the outcome.
func (t *rateTable) publish(o *Outcome) {
	table := &Table{Title: t.title + t.cores.suffix(), Head: t.head(), Notes: t.notes}
	experiment := o.Name + t.cores.prefix()
	for _, r := range t.rows {
		bars := t.bars(experiment, r)
		for _, bar := range bars {
			o.Bars = append(o.Bars, bar.Bar)
		}
		o.Results = append(o.Results, t.result(experiment, r))
		table.row(t.cells(r, bars)...)
		r.remark(table)
	}
	o.Tables = append(o.Tables, table)
	o.Ranked = append(o.Ranked, t.ranking())
}

// head is the columns. Bars and the reference offer are for a source with a core of its own.
func (t *rateTable) head() []string {
	if t.base != nil {
		return costHead
	}
	head := []string{"", "Mpps", "min .. max", "ns/packet", "of empty", "of one octet"}
	if t.cores == twoCores {
		head = append(head, "bar, of empty", "of 7 Mpps", "bar, of 7 Mpps")
	}
	if t.rival != nil {
		head = append(head, "x "+t.rival.label)
		if t.cores == twoCores {
			head = append(head, "bar, x")
		}
	}
	return append(head, "")
}

// cells are a row as text.
func (t *rateTable) cells(r *rate, bars []rateBar) []string {
	if t.base != nil {
		return t.costCells(r, bars)
	}
	cells := make([]string, len(t.head()))
	cells[0], cells[len(cells)-1] = r.label, r.remarks()
	if !r.measured() {
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
	if t.rival != nil {
		put("x "+t.rival.label, shareText(r, t.rival))
	}
	for _, bar := range bars {
		put(bar.column, bar.String())
	}
	return cells
}

// figures are rate, spread, and time per packet as text.
func (r *rate) figures() []string {
	mpps := func(pps float64) string { return fmt.Sprintf("%.2f", pps/1e6) }
	arrived := r.arrived()
	median := arrived.median()
	return []string{
		mpps(median), mpps(slices.Min(arrived)) + " .. " + mpps(slices.Max(arrived)), fmt.Sprintf("%.1f", 1e9/median),
	}
}

// shares are a row's rates as shares of another's in the same rounds, of which both measured something.
func shares(r, limit *rate) series {
	if r == nil || limit == nil {
		return nil
	}
	return r.rounds.by(limit.rounds).positive()
}

// share is their median; false when there is none.
func share(r, limit *rate) (float64, bool) {
	s := shares(r, limit)
	return s.median(), len(s) > 0
}

func shareText(r, limit *rate) string {
	if v, ok := share(r, limit); ok {
		return fmt.Sprintf("%.2f", v)
	}
	return ""
}

// referenceShares are what a row takes of the reference offer, as shares of what the limit takes of it.
func referenceShares(r, limit *rate) series {
	if limit == nil {
		return nil
	}
	return r.reference.by(limit.reference).positive()
}

// referenceShare is their median; false when there is none.
func referenceShare(r, limit *rate) (float64, bool) {
	s := referenceShares(r, limit)
	return s.median(), len(s) > 0
}

// rateBar is a bar with the column of the table that shows it.
type rateBar struct {
	*Bar
	column string
}

// bars compare the row with what it has to reach: of all that the limit takes, of the reference offer, and of the
// rival's rate.
func (t *rateTable) bars(experiment string, r *rate) (bars []rateBar) {
	if t.cores == oneCore {
		return nil
	}
	add := func(column, what string, value float64, ok bool, bound float64) {
		if ok && bound > 0 {
			bars = append(bars, rateBar{atLeast(experiment+"/"+r.name+what, value, bound), column})
		}
	}
	full, ok := share(r, t.empty)
	add("bar, of empty", " of empty", full, ok, r.least)
	reference, both := referenceShare(r, t.empty)
	add("bar, of 7 Mpps", " of 7 Mpps", reference, ok && both, r.least)
	if t.rival != nil {
		times, ok := share(r, t.rival)
		add("bar, x", " x "+t.rival.name, times, ok, r.times)
	}
	return bars
}

// measured reports whether there are figures that can be divided by.
func (r *rate) measured() bool { return len(r.arrived()) > 0 }

// unsteady reports whether the figures are doubtful.
func (r *rate) unsteady() bool { return r.disturbed > 0 || r.arrived().unsteady() }

// fromSource reports whether most rounds say how fast the source is, not the receiver.
func (r *rate) fromSource() bool { return 2*r.starved > len(r.arrived()) }

// remarks is why there is no figure, or short signs that notes below the table explain.
func (r *rate) remarks() (marks string) {
	if len(r.rounds) > 0 && !r.measured() {
		return "nothing arrived: others had the CPUs"
	}
	if !r.measured() {
		return r.missing
	}
	if r.unsteady() {
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
func (r *rate) remark(t *Table) {
	if r.unsteady() {
		t.note("~ unsteady: others had the receiving CPU, or the rounds differ by more than %.0f%%", 100*unsteadySpread)
	}
	if r.fromSource() {
		t.note("^ the source was slower than the receiver: the figure is a lower bound")
	}
	if r.measured() && r.failed() > 0 {
		t.note("! nothing arrived in %d of %d rounds, which are left out: others had the CPUs", r.failed(), len(r.rounds))
	}
}

// result is the row for programs.
func (t *rateTable) result(experiment string, r *rate) lab.Result {
	res := lab.Result{Name: experiment + "/" + r.name, Runs: len(r.rounds), Note: r.remarks()}
	if !r.measured() {
		res.Metrics = r.extra
		return res
	}
	add := func(unit string, figures series) {
		if len(figures) > 0 {
			res.Metrics = append(res.Metrics, figures.metric(unit))
		}
	}
	add("ns/op", r.arrived().each(func(pps float64) float64 { return 1e9 / pps }))
	add("Mpps", r.arrived().each(func(pps float64) float64 { return pps / 1e6 }))
	add("of-empty", shares(r, t.empty))
	add("of-one-octet", shares(r, t.touch))
	add("x-raw-drop", shares(t.base, r))
	add("of-7Mpps", referenceShares(r, t.empty))
	add("x-rival", shares(r, t.rival))
	res.Metrics = append(res.Metrics, r.extra...)
	return res
}
