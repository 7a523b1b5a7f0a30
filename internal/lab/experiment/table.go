package experiment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// publish adds the tables, the results, the bars, the claims and the curves to the outcome.
func (b *builder) publish() {
	if len(b.points) == 0 {
		return
	}
	o := b.Outcome
	for _, i := range b.columns() {
		for _, c := range b.cases {
			o.Results = append(o.Results, b.result(c, i))
		}
	}
	o.Tables = append(o.Tables, b.meanTable())
	for _, i := range b.detailed() {
		o.Tables = append(o.Tables, b.detailTable(i))
	}
	o.Tables = append(o.Tables, b.loadTable())
	o.Claims = b.claims()
	o.Curves = b.curves()
}

// figure is one of each round, in nanoseconds.
func (v *visit) figure(of func(*roundTimes) time.Duration) (all report.Samples) {
	for i := range v.rounds {
		all = append(all, float64(of(&v.rounds[i])))
	}
	return all
}

func wholeMean(r *roundTimes) time.Duration { return r.whole.Mean }
func wholeP50(r *roundTimes) time.Duration  { return r.whole.P50 }
func wholeP99(r *roundTimes) time.Duration  { return r.whole.P99 }
func wholeP999(r *roundTimes) time.Duration { return r.whole.P999 }

// phaseP50, phaseP99 and phaseP999 are of one of lab.SerialPhases.
func phaseP50(i int) func(*roundTimes) time.Duration {
	return func(r *roundTimes) time.Duration { return r.phases[i].P50 }
}

func phaseP999(i int) func(*roundTimes) time.Duration {
	return func(r *roundTimes) time.Duration { return r.phases[i].P999 }
}

func phaseP99(i int) func(*roundTimes) time.Duration {
	return func(r *roundTimes) time.Duration { return r.phases[i].P99 }
}

// unsteady reports whether the figures are doubtful.
func (v *visit) unsteady() bool { return v.figure(wholeP50).Unsteady() }

// named is a case by its name.
func (b *builder) named(name string) *testCase {
	return b.cases[slices.IndexFunc(b.cases, func(c *testCase) bool { return c.name == name })]
}

// noise is the same figure of no firewall: of all rounds of both of its hosts.
func (b *builder) noise(point int, of func(*roundTimes) time.Duration) report.Samples {
	return append(b.named(noFirewall).visits[point].figure(of), b.named(noneAgain).visits[point].figure(of)...)
}

// columns are the points that tables show.
func (b *builder) columns() (shown []int) {
	for i, p := range b.points {
		if p.column() || len(b.points) <= len(publishedColumns) {
			shown = append(shown, i)
		}
	}
	return shown
}

// column reports whether a point is one of the columns of the article's table, or beyond it.
func (p listPoint) column() bool {
	return p.entries > publishedMost || slices.Contains(publishedColumns, p.entries)
}

// detailed are the points of tables of their own: the last one, and the last one of all cases.
func (b *builder) detailed() (shown []int) {
	last := len(b.points) - 1
	for i := last; i >= 0; i-- {
		if !slices.ContainsFunc(b.cases, func(c *testCase) bool { return len(c.visits[i].rounds) == 0 }) {
			shown = append(shown, i)
			break
		}
	}
	if !slices.Contains(shown, last) {
		shown = append(shown, last)
	}
	return shown
}

// millisText and microsText are nanoseconds in other units.
func millisText(ns float64) string { return fmt.Sprintf("%.3f", ns/1e6) }
func microsText(ns float64) string { return fmt.Sprintf("%.1f", ns/1e3) }

// meanTable is the article's table.
func (b *builder) meanTable() *report.Table {
	t := &report.Table{Title: "blocklist: milliseconds of a request on the mean, by the number of blocked addresses", Head: []string{""}, Notes: b.notes()}
	for _, i := range b.columns() {
		t.Head = append(t.Head, report.Choice(b.points[i].name == "list", "list", report.CountText(b.points[i].entries)))
	}
	for _, c := range b.cases {
		if c.article != nil {
			t.AddRow(b.meanRow(c.label+" (article)", func(i int) string { return c.published(b.points[i].entries) })...)
		}
		t.AddRow(b.meanRow(c.label, func(i int) string {
			if means := c.visits[i].figure(wholeMean); len(means) > 0 {
				return millisText(means.Median())
			}
			return ""
		})...)
	}
	return t
}

func (b *builder) meanRow(label string, cell func(point int) string) []string {
	row := []string{label}
	for _, i := range b.columns() {
		row = append(row, cell(i))
	}
	return row
}

// published is the article's figure of a number of entries; "" when it has none.
func (c *testCase) published(entries int) string {
	if i := slices.Index(publishedColumns, entries); i >= 0 {
		return fmt.Sprintf("%.2f", c.article[i])
	}
	return ""
}

// notes are the choices made.
func (b *builder) notes() []string {
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

// The columns of a table of details that have bars.
const (
	columnBarP50 = 3
	columnBarP99 = 5
)

// detailTable is the distribution of the times of requests with a list, and those of their phases.
func (b *builder) detailTable(point int) *report.Table {
	t := &report.Table{
		Title: "blocklist: microseconds of a request and its phases, with " + b.points[point].label,
		Head:  []string{"", "mean", "half", "bar", "99%", "bar", "99.9%"},
		Notes: []string{
			"connect: until the connection stands; send: until the request is handed to the kernel; first byte: until there is something",
			"of the answer; complete: from then until the server has closed the connection.",
		},
	}
	for _, name := range lab.SerialPhases {
		t.Head = append(t.Head, name+": half", "99%")
	}
	t.Head = append(t.Head, "")
	bars := map[string][]*report.Bar{}
	if point == len(b.points)-1 && b.points[point].entries > 0 {
		bars[ourBlocker] = b.bars(point)
		b.Outcome.Bars = append(b.Outcome.Bars, bars[ourBlocker]...)
		t.AddNote("Bars: within noise of no firewall, that is, the median is at most the largest of no firewall's own %d rounds on two hosts:", len(b.noise(point, wholeP50)))
		t.AddNote("half of its requests took %s µs, 99%% took %s µs.", b.noiseText(point, wholeP50), b.noiseText(point, wholeP99))
	}
	for _, c := range b.cases {
		t.AddRow(c.visits[point].detailCells(c.label, bars[c.name])...)
		if c.visits[point].unsteady() {
			t.AddNote("~ unsteady: half of the requests took times that differ by more than %.0f%% between rounds.",
				100*report.UnsteadySpread)
		}
	}
	return t
}

func (b *builder) noiseText(point int, of func(*roundTimes) time.Duration) string {
	noise := b.noise(point, of)
	if len(noise) == 0 {
		return "?"
	}
	return microsText(slices.Min(noise)) + " .. " + microsText(slices.Max(noise))
}

// bars compare Floodwall's requests with those without firewall, in microseconds.
func (b *builder) bars(point int) (bars []*report.Bar) {
	v := b.named(ourBlocker).visits[point]
	for _, of := range []struct {
		name   string
		figure func(*roundTimes) time.Duration
	}{{"p50", wholeP50}, {"p99", wholeP99}} {
		figures, noise := v.figure(of.figure), b.noise(point, of.figure)
		if len(figures) > 0 && len(noise) > 0 {
			bars = append(bars, report.AtMost(b.resultName(ourBlocker, point)+" "+of.name+" µs", figures.Median()/1e3, slices.Max(noise)/1e3))
		}
	}
	return bars
}

func (b *builder) resultName(name string, point int) string {
	return b.Outcome.Name + "/" + b.points[point].name + "/" + name
}

// detailCells are a row as text.
func (v *visit) detailCells(label string, bars []*report.Bar) []string {
	cells := make([]string, 7+2*len(lab.SerialPhases)+1)
	cells[0], cells[len(cells)-1] = label, v.missing
	if len(v.rounds) == 0 {
		return cells
	}
	set := func(column int, of func(*roundTimes) time.Duration) {
		cells[column] = microsText(v.figure(of).Median())
	}
	set(1, wholeMean)
	set(2, wholeP50)
	set(4, wholeP99)
	set(6, wholeP999)
	for i := range lab.SerialPhases {
		set(7+2*i, phaseP50(i))
		set(8+2*i, phaseP99(i))
	}
	for i, bar := range bars {
		cells[[]int{columnBarP50, columnBarP99}[i]] = bar.String()
	}
	if v.unsteady() {
		cells[len(cells)-1] = "~"
	}
	return cells
}

// result is a case with a list for programs.
func (b *builder) result(c *testCase, point int) lab.Result {
	v := c.visits[point]
	r := lab.Result{Name: b.resultName(c.name, point), Runs: len(v.rounds), Note: v.missing}
	if len(v.rounds) == 0 {
		return r
	}
	r.Note = report.Choice(v.unsteady(), "~", "")
	add := func(unit string, of func(*roundTimes) time.Duration) {
		r.Metrics = append(r.Metrics, v.figure(of).Metric(unit))
	}
	r.Metrics = append(r.Metrics, v.figure(wholeMean).Each(func(ns float64) float64 { return 1e9 / ns }).Metric("req/s"))
	add("mean-ns", wholeMean)
	add("p50-ns", wholeP50)
	add("p99-ns", wholeP99)
	add("p999-ns", wholeP999)
	for i, name := range lab.SerialPhases {
		name = strings.ReplaceAll(name, " ", "-")
		add(name+"-p50-ns", phaseP50(i))
		add(name+"-p99-ns", phaseP99(i))
		add(name+"-p999-ns", phaseP999(i))
	}
	r.Metrics = append(r.Metrics, v.Metrics()...)
	return r
}

// loadTable is what loading takes.
func (b *builder) loadTable() *report.Table {
	t := &report.Table{
		Title: "blocklist: loading", Head: []string{"", "seconds", "MB in the kernel", "bytes each", ""},
		Notes: []string{
			"Floodwall from the policy's text file to enforcement; the others by one run of their own tool, from a script in its own",
			"format: iptables-restore, ipset restore, nft -f.",
		},
	}
	for _, i := range b.columns() {
		p := b.points[i]
		if len(b.points) > len(publishedColumns) && p.entries != publishedStep && p.entries < publishedMost {
			continue // a few of the article's are enough
		}
		for _, c := range b.cases {
			if v := c.visits[i]; p.entries > 0 && len(v.Seconds) > 0 {
				t.AddRow(v.loadCells(p.label+": "+c.label, p.entries)...)
			}
		}
	}
	return t
}

func (v *visit) loadCells(label string, entries int) []string {
	cells := []string{label, report.SecondsText(v.Seconds.Median()), "", "", v.Note}
	if v.Bytes > 0 {
		cells[2], cells[3] = fmt.Sprintf("%.1f", v.Bytes/1e6), fmt.Sprintf("%.0f", v.Bytes/float64(entries))
	}
	if v.Roughly {
		cells[4] = "memory: what the whole machine's slabs and vmalloc grew by"
	}
	return cells
}
