package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// Shares of the requests per second without a firewall.
const (
	leastAsGood  = 0.98 // to be as good
	mostCollapse = 0.5  // to have collapsed
)

// publish adds the table, the results and the bars to the outcome.
func (b *webBuilder) publish() {
	t := &Table{
		Title: "conntrack: a web server whose table of connections is full",
		Head: []string{
			"", "article", "req/s", "min .. max", "of no firewall", "bar", "once full", "over time", "half", "90%", "99%", "time-outs", "entries", "drops", "",
		},
		Notes: b.webNotes(),
	}
	most := 0.0
	for _, c := range b.cases {
		if rates := c.overTime(); len(rates) > 0 {
			most = max(most, slices.Max(rates))
		}
	}
	for _, c := range b.cases {
		bars := b.bars(c)
		b.outcome.Bars = append(b.outcome.Bars, bars...)
		b.outcome.Results = append(b.outcome.Results, b.result(c))
		t.row(b.cells(c, bars, most)...)
		if len(c.visits) > 0 {
			b.outcome.Series = append(b.outcome.Series, Series{
				Name: b.resultName(c), Label: c.label, Unit: "req/s", Seconds: c.interval(), Values: c.overTime(),
			})
		}
		if c.unsteady() {
			t.note("~ unsteady: the rounds differ by more than %.0f%%", 100*unsteadySpread)
		}
	}
	b.outcome.Tables = append(b.outcome.Tables, t, b.secondsTable())
	b.outcome.Ranked = append(b.outcome.Ranked, b.ranking())
	b.outcome.Claims = b.claims()
}

// ranking is the requests per second of each case.
func (b *webBuilder) ranking() Ranking {
	r := Ranking{Title: "conntrack: requests answered per second", Unit: "req/s"}
	for _, c := range b.cases {
		r.add(c.label, c.figure(rateOf), 1, c.unsteady())
	}
	if len(b.cases[0].visits) > 0 {
		r.Limit = b.cases[0].label
	}
	return r
}

func (b *webBuilder) resultName(c *webCase) string { return b.outcome.Name + "/" + c.name }

// cells are a row as text.
func (b *webBuilder) cells(c *webCase, bars []*Bar, most float64) []string {
	cells := make([]string, 15)
	cells[0], cells[1], cells[14] = c.label, c.article, c.missing
	if len(c.visits) == 0 {
		return cells
	}
	rates := c.figure(rateOf)
	cells[2] = fmt.Sprintf("%.0f", rates.median())
	cells[3] = fmt.Sprintf("%.0f .. %.0f", slices.Min(rates), slices.Max(rates))
	if ratios := c.ratio(b.cases[0]); len(ratios) > 0 {
		cells[4] = fmt.Sprintf("%.3f (%.2f .. %.2f)", ratios.median(), slices.Min(ratios), slices.Max(ratios))
	}
	if len(bars) > 0 {
		cells[5] = bars[0].String()
	}
	if full := c.fullRates(); len(full) > 0 {
		cells[6] = fmt.Sprintf("%.0f", full.median())
	}
	cells[7] = lab.Spark(c.overTime(), most)
	for i, of := range []func(*visit) time.Duration{
		func(v *visit) time.Duration { return v.P50 }, func(v *visit) time.Duration { return v.P90 },
		func(v *visit) time.Duration { return v.P99 },
	} {
		cells[8+i] = lab.Millis(time.Duration(c.figure(func(v *visit) float64 { return float64(of(v)) }).median()))
	}
	for i, of := range []func(*visit) float64{timeouts, entries, drops} {
		cells[11+i] = countText(int(c.figure(of).median()))
	}
	if c.unsteady() {
		cells[14] = "~"
	}
	return cells
}

func rateOf(v *visit) float64   { return v.Rate }
func timeouts(v *visit) float64 { return float64(v.Errors[lab.FailedTimeout]) }
func entries(v *visit) float64  { return float64(v.entries) }
func drops(v *visit) float64    { return float64(v.drops) }

// unsteady reports whether the figures are doubtful.
func (c *webCase) unsteady() bool { return c.figure(rateOf).unsteady() }

// bars compare the case with what it has to show: that it is as good as no firewall and keeps the table empty, or that
// it collapses.
func (b *webBuilder) bars(c *webCase) []*Bar {
	none := b.cases[0]
	ratios := c.ratio(none)
	switch name := b.resultName(c); {
	case len(ratios) == 0:
		return nil
	case c.bars:
		return []*Bar{
			atLeast(name+" of no firewall", ratios.median(), leastAsGood),
			atMost(name+" entries in the table", slices.Max(c.figure(entries)), 0),
		}
	case c.full:
		// Once the table is full, which it is not from the beginning.
		full, base := c.fullRates(), none.figure(rateOf).median()
		if len(full) == 0 {
			return []*Bar{atMost(name+" of no firewall, once full", ratios.median(), mostCollapse)}
		}
		return []*Bar{atMost(name+" of no firewall, once full", full.median()/base, mostCollapse)}
	}
	return nil
}

// result is the case for programs.
func (b *webBuilder) result(c *webCase) lab.Result {
	r := lab.Result{Name: b.resultName(c), Runs: len(c.visits), Note: c.missing}
	if len(c.visits) == 0 {
		return r
	}
	add := func(unit string, figures series) {
		if len(figures) > 0 {
			r.Metrics = append(r.Metrics, figures.metric(unit))
		}
	}
	add("req/s", c.figure(rateOf))
	add("of-no-firewall", c.ratio(b.cases[0]))
	add("full-req/s", c.fullRates())
	add("p50-ns", c.figure(func(v *visit) float64 { return float64(v.P50) }))
	add("p90-ns", c.figure(func(v *visit) float64 { return float64(v.P90) }))
	add("p99-ns", c.figure(func(v *visit) float64 { return float64(v.P99) }))
	add("mean-ns", c.figure(func(v *visit) float64 { return float64(v.Mean) }))
	add("timeouts", c.figure(timeouts))
	add("failed", c.figure(func(v *visit) float64 { return float64(v.Failed) }))
	add("entries", c.figure(entries))
	add("drops", c.figure(drops))
	add("early-drops", c.figure(func(v *visit) float64 { return float64(v.early) }))
	if c.unsteady() {
		r.Note = "~"
	}
	return r
}

// interval is the seconds between the figures over time.
func (c *webCase) interval() float64 {
	v := c.visits[0]
	if len(v.moments) == 0 {
		return 0
	}
	return v.moments[0].Time.Seconds()
}

// secondsTable is the requests per second over time, a column for each case.
func (b *webBuilder) secondsTable() *Table {
	t := &Table{Title: "conntrack: requests answered per second over time", Head: []string{"seconds"}}
	lines, step := 0, 0.0
	for _, c := range b.cases {
		t.Head = append(t.Head, c.label)
		if lines = max(lines, len(c.overTime())); len(c.visits) > 0 {
			step = max(step, c.interval())
		}
	}
	for i := range lines {
		row := []string{fmt.Sprintf("%.1f", float64(i+1)*step)}
		for _, c := range b.cases {
			text := ""
			if rates := c.overTime(); i < len(rates) {
				text = fmt.Sprintf("%.0f", rates[i])
			}
			row = append(row, text)
		}
		t.row(row...)
	}
	return t
}
