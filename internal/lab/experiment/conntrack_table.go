package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
)

// Shares of the requests per second without a firewall.
const (
	leastAsGood  = 0.98 // to be as good
	mostCollapse = 0.5  // to have collapsed
)

// publish adds the table, the results and the bars to the outcome.
func (b *conntrackBuilder) publish() {
	t := &report.Table{
		Title: "conntrack: a web server whose table of connections is full",
		Head: []string{
			"", "article", "req/s", "min .. max", "of no firewall", "bar", "once full", "over time", "half", "90%", "99%", "time-outs", "entries", "drops", "",
		},
		Notes: b.notes(),
	}
	most := 0.0
	for _, c := range b.cases {
		if rates := c.overTime(); len(rates) > 0 {
			most = max(most, slices.Max(rates))
		}
	}
	for _, c := range b.cases {
		bars := b.bars(c)
		b.Outcome.Bars = append(b.Outcome.Bars, bars...)
		b.Outcome.Results = append(b.Outcome.Results, b.result(c))
		t.AddRow(b.cells(c, bars, most)...)
		if len(c.visits) > 0 {
			b.Outcome.Series = append(b.Outcome.Series, report.Series{
				Name: b.resultName(c), Label: c.label, Unit: "req/s", Seconds: c.interval(), Values: c.overTime(),
			})
		}
		if c.unsteady() {
			t.AddNote("~ unsteady: the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread)
		}
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t, b.secondsTable())
	b.Outcome.Ranked = append(b.Outcome.Ranked, b.ranking())
	b.Outcome.Claims = b.claims()
}

// ranking is the requests per second of each case.
func (b *conntrackBuilder) ranking() report.Ranking {
	r := report.Ranking{Title: "conntrack: requests answered per second", Unit: "req/s"}
	for _, c := range b.cases {
		r.Add(c.label, c.figure(rateOf), 1, c.unsteady())
	}
	if len(b.cases[0].visits) > 0 {
		r.Limit = b.cases[0].label
	}
	return r
}

func (b *conntrackBuilder) resultName(c *conntrackTestCase) string {
	return b.Outcome.Name + "/" + c.name
}

// cells are a row as text.
func (b *conntrackBuilder) cells(c *conntrackTestCase, bars []*report.Bar, most float64) []string {
	cells := make([]string, 15)
	cells[0], cells[1], cells[14] = c.label, c.article, c.missing
	if len(c.visits) == 0 {
		return cells
	}
	rates := c.figure(rateOf)
	cells[2] = fmt.Sprintf("%.0f", rates.Median())
	cells[3] = fmt.Sprintf("%.0f .. %.0f", slices.Min(rates), slices.Max(rates))
	if ratios := c.ratio(b.cases[0]); len(ratios) > 0 {
		cells[4] = fmt.Sprintf("%.3f (%.2f .. %.2f)", ratios.Median(), slices.Min(ratios), slices.Max(ratios))
	}
	if len(bars) > 0 {
		cells[5] = bars[0].String()
	}
	if full := c.fullRates(); len(full) > 0 {
		cells[6] = fmt.Sprintf("%.0f", full.Median())
	}
	cells[7] = lab.Spark(c.overTime(), most)
	for i, of := range []func(*conntrackVisit) time.Duration{
		func(v *conntrackVisit) time.Duration { return v.P50 }, func(v *conntrackVisit) time.Duration { return v.P90 },
		func(v *conntrackVisit) time.Duration { return v.P99 },
	} {
		cells[8+i] = lab.Millis(time.Duration(c.figure(func(v *conntrackVisit) float64 { return float64(of(v)) }).Median()))
	}
	for i, of := range []func(*conntrackVisit) float64{timeouts, entries, drops} {
		cells[11+i] = report.CountText(int(c.figure(of).Median()))
	}
	if c.unsteady() {
		cells[14] = "~"
	}
	return cells
}

func rateOf(v *conntrackVisit) float64   { return v.Rate }
func timeouts(v *conntrackVisit) float64 { return float64(v.Errors[lab.FailedTimeout]) }
func entries(v *conntrackVisit) float64  { return float64(v.entries) }
func drops(v *conntrackVisit) float64    { return float64(v.drops) }

// unsteady reports whether the figures are doubtful.
func (c *conntrackTestCase) unsteady() bool { return c.figure(rateOf).Unsteady() }

// bars compare the case with what it has to show: that it is as good as no firewall and keeps the table empty, or that
// it collapses.
func (b *conntrackBuilder) bars(c *conntrackTestCase) []*report.Bar {
	none := b.cases[0]
	ratios := c.ratio(none)
	switch name := b.resultName(c); {
	case len(ratios) == 0:
		return nil
	case c.bars:
		return []*report.Bar{
			report.AtLeast(name+" of no firewall", ratios.Median(), leastAsGood),
			report.AtMost(name+" entries in the table", slices.Max(c.figure(entries)), 0),
		}
	case c.full:
		// Once the table is full, which it is not from the beginning.
		full, base := c.fullRates(), none.figure(rateOf).Median()
		if len(full) == 0 {
			return []*report.Bar{report.AtMost(name+" of no firewall, once full", ratios.Median(), mostCollapse)}
		}
		return []*report.Bar{report.AtMost(name+" of no firewall, once full", full.Median()/base, mostCollapse)}
	}
	return nil
}

// result is the case for programs.
func (b *conntrackBuilder) result(c *conntrackTestCase) lab.Result {
	r := lab.Result{Name: b.resultName(c), Runs: len(c.visits), Note: c.missing}
	if len(c.visits) == 0 {
		return r
	}
	add := func(unit string, figures report.Samples) {
		if len(figures) > 0 {
			r.Metrics = append(r.Metrics, figures.Metric(unit))
		}
	}
	add("req/s", c.figure(rateOf))
	add("of-no-firewall", c.ratio(b.cases[0]))
	add("full-req/s", c.fullRates())
	add("p50-ns", c.figure(func(v *conntrackVisit) float64 { return float64(v.P50) }))
	add("p90-ns", c.figure(func(v *conntrackVisit) float64 { return float64(v.P90) }))
	add("p99-ns", c.figure(func(v *conntrackVisit) float64 { return float64(v.P99) }))
	add("mean-ns", c.figure(func(v *conntrackVisit) float64 { return float64(v.Mean) }))
	add("timeouts", c.figure(timeouts))
	add("failed", c.figure(func(v *conntrackVisit) float64 { return float64(v.Failed) }))
	add("entries", c.figure(entries))
	add("drops", c.figure(drops))
	add("early-drops", c.figure(func(v *conntrackVisit) float64 { return float64(v.early) }))
	if c.unsteady() {
		r.Note = "~"
	}
	return r
}

// interval is the seconds between the figures over time.
func (c *conntrackTestCase) interval() float64 {
	v := c.visits[0]
	if len(v.moments) == 0 {
		return 0
	}
	return v.moments[0].Time.Seconds()
}

// secondsTable is the requests per second over time, a column for each case.
func (b *conntrackBuilder) secondsTable() *report.Table {
	t := &report.Table{Title: "conntrack: requests answered per second over time", Head: []string{"seconds"}}
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
		t.AddRow(row...)
	}
	return t
}
