package experiment

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// What must hold of the clients behind Floodwall, with a flood of barFlood.
const (
	leastCompleted = 0.999 // of the connections
	mostSlower     = 2     // times the connect time without the flood, of the slowest hundredth
	wholeFlood     = 0.95  // of barFlood; beside less of it nothing has been shown,
	evenFlood      = 0.50  // nor beside a flood that was less than so much of it for watchPart
)

// name is the load as a part of a result's name; label as people read it.
func (l load) name() string {
	if l.flood == nil {
		return "quiet"
	}
	return fmt.Sprintf("%s=%gMpps", l.flood.name, l.pps/1e6)
}

func (l load) label() string {
	if l.flood == nil {
		return "no flood"
	}
	return fmt.Sprintf("%g Mpps, %s", l.pps/1e6, l.flood.label)
}

// figure is one of each visit with a load.
func (c *synproxyTestCase) figure(l load, of func(*synproxyVisit) float64) report.Samples {
	return figures(c.visits[l], of)
}

func figures(visits []*synproxyVisit, of func(*synproxyVisit) float64) (all report.Samples) {
	for _, v := range visits {
		all = append(all, of(v))
	}
	return all
}

func connectP50(v *synproxyVisit) float64  { return float64(v.Connect.P50) }
func connectP99(v *synproxyVisit) float64  { return float64(v.Connect.P99) }
func answerP99(v *synproxyVisit) float64   { return float64(v.Answered.P99) }
func entriesLeft(v *synproxyVisit) float64 { return float64(v.entries) }
func floodTaken(v *synproxyVisit) float64  { return v.flood }
func floodLeast(v *synproxyVisit) float64  { return v.least }

// slower is how many times the connect time of the slowest hundredth is that without a flood; 0 when no connection was
// completed with one of the two. Without a flood only visits count in which nobody else had the clients' CPU: others would
// make light of the flood.
func (c *synproxyTestCase) slower(l load) float64 {
	with := c.figure(l, connectP99).Median()
	calm := slices.DeleteFunc(slices.Clone(c.visits[quiet]), (*synproxyVisit).disturbed)
	without := figures(calm, connectP99).Median()
	if !(with > 0) || !(without > 0) {
		return 0
	}
	return with / without
}

// unsteady reports whether the figures with a load are doubtful.
func (c *synproxyTestCase) unsteady(l load) bool {
	disturbed := slices.ContainsFunc(c.visits[l], (*synproxyVisit).disturbed)
	return disturbed || c.figure(l, (*synproxyVisit).completed).Unsteady()
}

// weak reports whether the flood did not arrive beside the clients, with whom the attacker shares a CPU.
func (c *synproxyTestCase) weak(l load) bool {
	return l != quiet && (c.figure(l, floodTaken).Median() < wholeFlood*l.pps || c.figure(l, floodLeast).Median() < evenFlood*l.pps)
}

// clientsTable is what clients got, without a flood and with those of barFlood.
func (b *synproxyBuilder) clientsTable() *report.Table {
	t := &report.Table{
		Title: "synproxy: clients beside a flood",
		Head: []string{
			"", "completed", "min .. max", "bar", "per s", "connect: half", "99%", "x no flood", "bar", "answered: 99%", "flood Mpps", "entries", "bar", "",
		},
		Notes: []string{
			fmt.Sprintf("%s connections per second are due, a fifth of the talk's as two cores do all the work, from 250 addresses, each in", report.CountText(synproxyClientRate)),
			fmt.Sprintf("a /24 of its own; one is completed when its answer has come within %v. Times count from when it was due.", synproxyClientTimeout(visitTime(b.Session))),
			fmt.Sprintf("Clients and flood have a wire each; the two meet in CPU %d, where nginx runs when its receive threads do not.", rig.ReceiverCPU),
			"Who is overwhelmed by the flood there leaves nginx nothing; in the kernel's own softirq threads, nginx would get a share.",
			"XDP_TX and XDP_DROP are on the attacker's wire alone, in front of no other defence: what the lab itself makes of the flood.",
			"x no flood: only rounds without one count in which nobody else had the clients' CPU.",
			"Entries are those of the flooded host's conntrack table at the end.",
			fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns.", b.Rounds, visitTime(b.Session)),
		},
	}
	for _, c := range b.cases {
		for _, l := range loadsOf(b.Session, c) {
			b.clientsRow(t, c, l)
		}
	}
	return t
}

// clientsRow adds a case with a load to the results and the bars, and to the table unless the flood's rate is of the
// curve alone.
func (b *synproxyBuilder) clientsRow(t *report.Table, c *synproxyTestCase, l load) {
	bars := b.clientsBars(c, l)
	for _, column := range slices.Sorted(maps.Keys(bars)) {
		b.Outcome.Bars = append(b.Outcome.Bars, bars[column])
	}
	b.Outcome.Results = append(b.Outcome.Results, b.clientsResult(c, l))
	if l == quiet || l.pps == barFlood {
		t.AddRow(c.clientsCells(l, bars)...)
		if len(c.visits[l]) > 0 && c.weak(l) {
			t.AddNote("v the host took less than %.0f%% of the flood, or less than %.0f%% in some %v: no bar is judged.",
				100*wholeFlood, 100*evenFlood, watchPart)
		}
		if c.unsteady(l) {
			t.AddNote("~ unsteady: others had the clients' CPU for more than %v at a time, or the rounds differ by more than %.0f%%.", mostStalled, 100*report.UnsteadySpread)
		}
	}
}

func (b *synproxyBuilder) clientsName(c *synproxyTestCase, l load) string {
	return b.Outcome.Name + "/" + c.visitRow(l)
}

// visitRow is what the row of a case's clients with a load is called.
func (c *synproxyTestCase) visitRow(l load) string { return "clients/" + c.name + "/" + l.name() }

// Columns of the table that bars stand in.
const (
	columnCompleted = 3
	columnSlower    = 8
	columnEntries   = 12
)

// clientsBars compare what clients get behind Floodwall with what they should, by the column that shows it.
func (b *synproxyBuilder) clientsBars(c *synproxyTestCase, l load) map[int]*report.Bar {
	bars := make(map[int]*report.Bar)
	if c.rival == "" || len(c.visits[l]) == 0 {
		return bars
	}
	name := b.clientsName(c, l)
	if l.pps == barFlood && !c.weak(l) {
		bars[columnCompleted] = report.AtLeast(name+" completed", c.figure(l, (*synproxyVisit).completed).Median(), leastCompleted)
		if slower := c.slower(l); slower > 0 {
			bars[columnSlower] = report.AtMost(name+" connect p99 x quiet", slower, mostSlower)
		}
	}
	if !c.behind {
		bars[columnEntries] = report.AtMost(name+" entries", slices.Max(c.figure(l, entriesLeft)), 0)
	}
	return bars
}

// clientsCells are a row as text.
func (c *synproxyTestCase) clientsCells(l load, bars map[int]*report.Bar) []string {
	cells := make([]string, 14)
	cells[0], cells[13] = c.label+": "+l.label(), c.missing
	if len(c.visits[l]) == 0 {
		return cells
	}
	percent := func(v float64) string { return fmt.Sprintf("%.2f%%", 100*v) }
	millis := func(of func(*synproxyVisit) float64) string {
		return lab.Millis(time.Duration(c.figure(l, of).Median()))
	}
	shares := c.figure(l, (*synproxyVisit).completed)
	cells[1], cells[2] = percent(shares.Median()), percent(slices.Min(shares))+" .. "+percent(slices.Max(shares))
	cells[4] = fmt.Sprintf("%.0f", c.figure(l, (*synproxyVisit).perSecond).Median())
	cells[5], cells[6], cells[9] = millis(connectP50), millis(connectP99), millis(answerP99)
	if slower := c.slower(l); l != quiet && slower > 0 {
		cells[7] = fmt.Sprintf("%.2f", slower)
	}
	if l != quiet {
		cells[10] = fmt.Sprintf("%.2f", c.figure(l, floodTaken).Median()/1e6)
	}
	cells[11] = report.CountText(int(slices.Max(c.figure(l, entriesLeft))))
	for column, bar := range bars {
		cells[column] = bar.String()
	}
	cells[13] = report.Choice(c.unsteady(l), "~", "") + report.Choice(c.weak(l), "v", "")
	return cells
}

// clientsResult is a case with a load for programs.
func (b *synproxyBuilder) clientsResult(c *synproxyTestCase, l load) lab.Result {
	r := lab.Result{Name: b.clientsName(c, l), Runs: len(c.visits[l]), Note: c.missing}
	if len(c.visits[l]) == 0 {
		return r
	}
	for _, m := range []struct {
		unit string
		of   func(*synproxyVisit) float64
	}{
		{"completed", (*synproxyVisit).completed}, {"connections/s", (*synproxyVisit).perSecond}, {"connect-p50-ns", connectP50},
		{"connect-p99-ns", connectP99}, {"answered-p99-ns", answerP99}, {"entries", entriesLeft}, {"flood-pps", floodTaken},
		{"least-flood-pps", floodLeast},
	} {
		figures := c.figure(l, m.of)
		r.Metrics = append(r.Metrics, figures.Metric(m.unit))
	}
	return r
}

// clientsChart is the connections per second over the rate of a flood of SYNs.
func (b *synproxyBuilder) clientsChart() *report.Table {
	const title = "clients' connections per second over the rate of a SYN flood"
	var curves []report.Curve
	rates := append([]float64{0}, clientRates(b.Session)...)
	for _, c := range b.cases {
		one := report.Curve{Name: b.Outcome.Name + "/clients/" + c.name, Chart: title, Label: c.label, X: "pps", Y: "connections/s"}
		for _, pps := range rates {
			l := report.Choice(pps == 0, quiet, load{SYNs, pps})
			if figures := c.figure(l, (*synproxyVisit).perSecond); len(figures) > 0 {
				one.Points = append(one.Points, [2]float64{pps, figures.Median()})
			}
		}
		if c.limit == nil && len(one.Points) == len(rates) {
			curves = append(curves, one)
		}
	}
	b.Outcome.Curves = append(b.Outcome.Curves, curves...)
	return report.CurveTable("synproxy: "+title, rateHead(rates), curves, 1)
}
