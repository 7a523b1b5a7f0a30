// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// publish adds the tables, the results, the bars, the claims and the curves to the outcome.
func (b *blocklist) publish() {
	if len(b.points) == 0 {
		return
	}
	o := b.Outcome
	b.setGoals()
	b.meanTable().Publish(o)
	for _, p := range b.detailed() {
		b.detailTable(p).Publish(o)
	}
	o.Tables = append(o.Tables, b.loadTable())
	o.Claims = b.claims()
	o.Curves = b.curves()
}

// half is the unit of the median time of requests, in nanoseconds.
const half = "p50-ns"

// noise returns the values of a figure without a firewall. They are from all rounds of the two rows that have no firewall.
func (p *listPoint) noise(unit string) report.Samples {
	return append(p.row(noFirewall).Figure(unit), p.row(noneAgain).Figure(unit)...)
}

// setGoals sets Floodwall's goals for the longest list. Its times, in microseconds, must not exceed the longest time without a firewall.
func (b *blocklist) setGoals() {
	p := b.points[len(b.points)-1]
	if p.entries == 0 {
		return
	}
	for _, f := range []struct{ name, unit string }{{"p50", half}, {"p99", "p99-ns"}} {
		if noise := p.noise(f.unit); len(noise) > 0 {
			r := p.row(ourBlocker)
			for _, read := range r.Rounds {
				read[f.name+"-us"] = read[f.unit] / 1e3
			}
			r.Goals = append(r.Goals, rig.Goal{Unit: f.name + "-us", What: f.name + " µs", Bound: noise.Longest() / 1e3, Most: true})
		}
	}
}

// columns returns the points that the tables show.
func (b *blocklist) columns() (shown []*listPoint) {
	for _, p := range b.points {
		if p.column() || len(b.points) <= len(publishedColumns) {
			shown = append(shown, p)
		}
	}
	return shown
}

// column reports whether a point is a column of the article's table, or has more entries than the article.
func (p *listPoint) column() bool {
	return p.entries > publishedMost || slices.Contains(publishedColumns, p.entries)
}

// detailed returns the points that have tables of their own: the last point, and the last point at which all blockers were measured.
func (b *blocklist) detailed() (shown []*listPoint) {
	for _, p := range slices.Backward(b.points) {
		if !slices.ContainsFunc(p.rows, func(r *rig.Row) bool { return len(r.Rounds) == 0 }) {
			shown = append(shown, p)
			break
		}
	}
	if last := b.points[len(b.points)-1]; !slices.Contains(shown, last) {
		shown = append(shown, last)
	}
	return shown
}

// millisText returns nanoseconds as text in milliseconds.
func millisText(ns float64) string { return fmt.Sprintf("%.3f", ns/1e6) }

// meanTable returns the article's table, and the results. The article's own figures are in lines before those of its tools.
func (b *blocklist) meanTable() *rig.Table {
	t := &rig.Table{
		Title: "blocklist: milliseconds of a request on the mean, by the number of blocked addresses", Bare: true, Notes: b.notes(),
		Results: []string{"req/s", "mean-ns", half, "p99-ns", "p999-ns"}, Marks: []rig.Mark{{Sign: "~", On: rig.Unsteady(half).On}},
	}
	for _, phase := range lab.SerialPhases {
		for _, figure := range []string{half, "p99-ns", "p999-ns"} {
			t.Results = append(t.Results, phaseUnit(phase, figure))
		}
	}
	for _, p := range b.columns() {
		t.Columns = append(t.Columns, rig.Column{
			Head: report.Choice(p.name == "list", "list", report.CountText(p.entries)), Load: p.name, Unit: "mean-ns", Show: rig.Digits(3, 1e6),
		})
		t.Rows = append(t.Rows, p.rows...)
	}
	t.Above = func(line []*rig.Row) []string {
		c := b.blockers[slices.IndexFunc(b.blockers, func(c *blocker) bool { return c.name == line[0].Kind })]
		if c.article == nil {
			return nil
		}
		cells := []string{c.label + " (article)"}
		for _, p := range b.columns() {
			cells = append(cells, c.published(p.entries))
		}
		return cells
	}
	return t
}

// published returns the article's figure for a number of entries, or "" if the article has none.
func (c *blocker) published(entries int) string {
	if i := slices.Index(publishedColumns, entries); i >= 0 {
		return fmt.Sprintf("%.2f", c.article[i])
	}
	return ""
}

// notes returns texts that describe the choices of the experiment.
func (b *blocklist) notes() []string {
	return []string{
		fmt.Sprintf("Article: 2012, the mean of %s requests. Here: nginx on the blocking host serves a file of 10 KiB to a client on another one, who",
			report.CountText(articleRequests)),
		fmt.Sprintf("asks %s times, one request after another, in HTTP/1.0, each on a connection of its own, after %d requests that do not count.",
			report.CountText(b.requests()), warmup),
		fmt.Sprintf("CPU %d has the client, CPU %d the server, both before all ordinary processes. The cases take turns, on a host each, in %d rounds;",
			rig.SourceCPU, rig.ReceiverCPU, b.Rounds),
		fmt.Sprintf("in one only where the article's table has no column, in %d with the longest list. Figures are medians of the rounds.", max(b.Rounds, leastRounds)),
		"The addresses are random, and none of them asks. That they are blocked is tried each time: a client with one of them gets no",
		"answer, but does without a firewall. Rules stand in INPUT, as in the article; nft's set in an input chain; Floodwall's policy",
		"is `rules: [{name: blocked, from: $blocked, then: drop}]` with the set from a file, and no more.",
	}
}

// detailTable returns the table with the distribution of request times for a list, and the times of the phases of requests.
func (b *blocklist) detailTable(p *listPoint) *rig.Table {
	micros := rig.Digits(1, 1e3)
	t := &rig.Table{
		Title: "blocklist: microseconds of a request and its phases, with " + p.label, Rows: p.rows,
		Columns: []rig.Column{
			{Head: "mean", Unit: "mean-ns", Show: micros}, {Head: "half", Unit: half, Show: micros}, {Head: "99%", Unit: "p99-ns", Show: micros},
			{Head: "99.9%", Unit: "p999-ns", Show: micros},
		},
		Marks: []rig.Mark{{
			Sign: "~", On: rig.Unsteady(half).On,
			Note: fmt.Sprintf("~ unsteady: half of the requests took times that differ by more than %.0f%% between rounds.", 100*report.UnsteadySpread),
		}},
		Notes: []string{
			"connect: until the connection stands; send: until the request is handed to the kernel; first byte: until there is something",
			"of the answer; complete: from then until the server has closed the connection.",
		},
	}
	for _, phase := range lab.SerialPhases {
		t.Columns = append(t.Columns, rig.Column{Head: phase + ": half", Unit: phaseUnit(phase, half), Show: micros},
			rig.Column{Head: "99%", Unit: phaseUnit(phase, "p99-ns"), Show: micros})
	}
	if p == b.points[len(b.points)-1] && p.entries > 0 {
		t.Notes = append(t.Notes,
			fmt.Sprintf("Bars: within noise of no firewall, that is, the median is at most the largest of no firewall's own %d rounds on two hosts:", len(p.noise(half))),
			fmt.Sprintf("half of its requests took %s µs, 99%% took %s µs.", p.noiseText(half), p.noiseText("p99-ns")))
	}
	return t
}

func (p *listPoint) noiseText(unit string) string {
	if noise := p.noise(unit); len(noise) > 0 {
		return rig.Range(1, 1e3)(noise)
	}
	return "?"
}

// loadTable returns the table with the time and memory that loading takes.
func (b *blocklist) loadTable() *report.Table {
	t := &report.Table{
		Title: "blocklist: loading", Head: []string{"", "seconds", "MB in the kernel", "bytes each", ""},
		Notes: []string{
			"Floodwall from the policy's text file to enforcement; the others by one run of their own tool, from a script in its own",
			"format: iptables-restore, ipset restore, nft -f.",
		},
	}
	for _, p := range b.columns() {
		if len(b.points) > len(publishedColumns) && p.entries != publishedStep && p.entries < publishedMost {
			continue // the table shows only a few of the article's numbers
		}
		for i, c := range b.blockers {
			if v := p.loaded[i]; p.entries > 0 && len(v.Seconds) > 0 {
				t.AddRow(v.Cells(p.label+": "+c.label, p.entries)...)
			}
		}
	}
	return t
}

// curves returns the charts, and the distributions of request times for the points that have tables of their own.
func (b *blocklist) curves() (all []report.Curve) {
	add := func(c report.Curve) {
		if len(c.Points) > 0 {
			all = append(all, c)
		}
	}
	// If a chart exceeds the article's number of entries, both of its axes are logarithmic.
	chart := func(name, title, unit string, most int) {
		log := most > publishedMost
		for _, c := range b.blockers {
			add(report.Curve{
				Name: b.Outcome.Name + "/" + name + "/" + c.name, Chart: title, Label: c.label, X: "entries", Y: "ms",
				LogX: log, LogY: log, Points: b.overEntries(c, unit, most),
			})
		}
	}
	chart("mean", "mean of a request, up to 50,000 entries", "mean-ns", publishedMost)
	chart("mean/log", "mean of a request, logarithmic axes", "mean-ns", rig.MaxSize)
	chart("p50/log", "half of the requests, logarithmic axes", half, rig.MaxSize)
	chart("p99/log", "99% of the requests, logarithmic axes", "p99-ns", rig.MaxSize)
	for _, p := range b.detailed() {
		for i, r := range p.rows {
			add(report.Curve{
				Name: b.Outcome.Name + "/" + r.Name + "/distribution", Chart: "times of requests with " + p.label, Label: r.Label,
				X: "% of the requests", Y: "ms", LogY: true, Points: p.shares[i],
			})
		}
	}
	return all
}

// overEntries returns the points of a chart: a figure of requests over the number of entries. A logarithmic axis has no place for 0 entries.
func (b *blocklist) overEntries(c *blocker, unit string, most int) (points [][2]float64) {
	for _, p := range b.points {
		if figures := p.row(c.name).Figure(unit); len(figures) > 0 && p.entries <= most && (p.entries > 0 || most <= publishedMost) {
			points = append(points, [2]float64{float64(p.entries), figures.Median() / 1e6})
		}
	}
	return points
}

// fewRules is a number of rules below 5,000. The article says that such a number hardly matters.
const fewRules = 4_000

// claims judges the article's claims.
func (b *blocklist) claims() []report.Claim {
	// judge adds a claim that a ratio of times is between least and most. The function ratio returns the ratio, the times as text, and their rows. It
	// returns no rows if these were not measured.
	judge := func(text, article, rule string, least, most float64, ratio func() (report.Samples, string, []*rig.Row)) report.Claim {
		c := report.OpenClaim(text, article, rule)
		if times, here, from := ratio(); len(from) > 0 {
			c = c.Within(here, times, least, most, slices.ContainsFunc(from, rig.Unsteady(half).On))
		}
		return c
	}
	return []report.Claim{
		judge("one ipset is 11 times as fast as a rule each", "8.59 ms against 0.76, 11 x",
			"on the mean over 0 to 50,000 entries, a request takes 5.5 to 22 times as long with a rule each", 5.5, 22, b.timesOfSet),
		judge("a rule each takes time in proportion to the number of rules", "0.76 ms with none, 8.04 with 25,000, 12.06 with 50,000",
			"50,000 rules add 1.5 to 3 times what 25,000 add to half of the requests", 1.5, 3, b.timesOfDouble),
		judge("the size of an ipset does not matter", "0.63 ms with none, 1.28 with 50,000",
			"with 50,000 entries, half of the requests come within at most 10% more time than with none", 0, 1.1, b.timesMore(ipsetBlocker, publishedMost)),
		judge("fewer than 5,000 rules hardly matter", "0.76 ms with none, 0.98 with 1,000",
			"with 4,000 rules, half of the requests come within at most 1.5 times the time without", 0, 1.5, b.timesMore(rulesBlocker, fewRules)),
	}
}

// at returns the row of a blocker for a number of entries, or nil if it was not measured.
func (b *blocklist) at(name string, entries int) *rig.Row {
	for _, p := range b.points {
		if r := p.row(name); p.entries == entries && len(r.Rounds) > 0 {
			return r
		}
	}
	return nil
}

// ms returns the median of times in milliseconds as text.
func ms(times report.Samples) string { return millisText(times.Median()) }

// timesOfSet returns the mean time with rules divided by the mean time with ipset. Both means are over all numbers of entries in the article.
func (b *blocklist) timesOfSet() (report.Samples, string, []*rig.Row) {
	from := []*rig.Row{b.at(rulesBlocker, 0), b.at(rulesBlocker, publishedMost), b.at(ipsetBlocker, 0), b.at(ipsetBlocker, publishedMost)}
	if slices.Contains(from, nil) {
		return nil, "", nil
	}
	rules, set := b.meansOf(rulesBlocker), b.meansOf(ipsetBlocker)
	times := rules.By(set)
	return times, fmt.Sprintf("%s ms against %s, %s", ms(rules), ms(set), report.WithInterval(times)), from
}

// meansOf returns a blocker's mean time for each round. The mean is over the numbers of entries from 0 to the article's maximum. Not all of these
// numbers are measured. Between two measured numbers, the time is interpolated linearly.
func (b *blocklist) meansOf(name string) (means report.Samples) {
	for round := 0; ; round++ {
		area, last, none := 0.0, [2]float64{}, true
		for _, p := range b.points {
			r := p.row(name)
			switch {
			case len(r.Rounds) == 0 || p.entries > publishedMost:
				continue
			case len(r.Rounds) <= round:
				return means
			}
			here := [2]float64{float64(p.entries), r.Rounds[round]["mean-ns"]}
			if !none {
				area += (here[0] - last[0]) * (here[1] + last[1]) / 2
			}
			last, none = here, false
		}
		if none {
			return means
		}
		means = append(means, area/publishedMost)
	}
}

// timesOfDouble returns the time that the maximum number of rules adds, divided by the time that half of these rules add.
func (b *blocklist) timesOfDouble() (report.Samples, string, []*rig.Row) {
	from := []*rig.Row{b.at(rulesBlocker, 0), b.at(rulesBlocker, publishedMost/2), b.at(rulesBlocker, publishedMost)}
	if slices.Contains(from, nil) {
		return nil, "", nil
	}
	none, some, all := from[0].Figure(half), from[1].Figure(half), from[2].Figure(half)
	if !(some.Median() > none.Median()) {
		return nil, "", nil
	}
	return all.Minus(none).By(some.Minus(none)), fmt.Sprintf("%s ms with none, %s with 25,000, %s with 50,000", ms(none), ms(some), ms(all)), from
}

// timesMore returns the time with a number of entries divided by the time without entries.
func (b *blocklist) timesMore(name string, entries int) func() (report.Samples, string, []*rig.Row) {
	return func() (report.Samples, string, []*rig.Row) {
		from := []*rig.Row{b.at(name, 0), b.at(name, entries)}
		if slices.Contains(from, nil) {
			return nil, "", nil
		}
		none, some := from[0].Figure(half), from[1].Figure(half)
		times := some.By(none)
		return times, fmt.Sprintf("%s ms with none, %s with %s, %s", ms(none), ms(some), report.CountText(entries), report.WithInterval(times)), from
	}
}
