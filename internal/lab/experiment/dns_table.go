package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// What must hold of clients and victims behind Floodwall, whatever the flood.
const (
	leastAnswered = 0.99 // of the clients' queries
	mostReflected = 1    // bytes to others, as a share of what the attacker sent
)

// answered is the share of the queries that were answered in full.
func (v *dnsVisit) answered() float64 {
	if v.sent == 0 {
		return 0
	}
	return max(0, float64(len(v.latency))-float64(v.truncated)) / float64(v.sent)
}

// perSecond is the clients' queries answered in full, per second.
func (v *dnsVisit) perSecond() float64 { return v.answered() * float64(v.sent) / v.time.Seconds() }

// amplification is bytes to others per byte of the attacker.
func (v *dnsVisit) amplification() float64 {
	if v.bytes == 0 {
		return 0
	}
	return float64(v.othersBytes) / float64(v.bytes)
}

// figure is one of each visit.
func (c *dnsTestCase) figure(of func(*dnsVisit) float64) (all report.Samples) {
	for _, v := range c.visits {
		all = append(all, of(v))
	}
	return all
}

// notes are the choices made.
func (b *dnsBuilder) notes() []string {
	return []string{
		fmt.Sprintf("Clients: dnsperf asks for %s names %s times a second from %d addresses, each in a /24 of its own; an answer that takes",
			report.CountText(dnsNames), report.CountText(clientRate), clientCount),
		fmt.Sprintf("longer than %v is lost, and one that is truncated does not count. Floods: ANY queries of %d bytes with EDNS,", clientTimeout(b.visitTime()), len(queryFor(bigName, typeANY))),
		"random identifiers and ports, for a name of which unbound sends 3,028 bytes; or A queries for random names of the clients'",
		"zone, whose own names the clients have asked for before. MB are of all frames: what the attacker",
		"sends, and what goes to addresses that are not the clients'. Clients and attacker have a wire each to the resolver, whose",
		"one CPU receives both: in the 256 places of one wire's queue, a flood pushes queries aside before any firewall sees them.",
		"Unbound resolves from a zone of its own, as if upstream, into its cache; its limits are ip-ratelimit 20 and ratelimit",
		"1000. Its sockets hold 4 MB, which its manual names for busy servers; in one row, what the system gives. That small",
		"buffer flatters it here: clients ask from the attacker's CPU, and so whenever the attacker pauses, and find it empty.",
		"Floodwall's policy is `default: drop` with the service of docs/guides/open-resolver.md:",
		"`" + service + "`",
		fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns. CPU %d has the attacker, and before it the clients; CPU %d has unbound",
			b.Rounds, b.visitTime(), rig.SourceCPU, rig.ReceiverCPU),
		"and, before it, the receive thread, as interrupts are.",
	}
}

// publish adds the table, the results and the bars to the outcome.
func (b *dnsBuilder) publish() {
	t := &report.Table{
		Title: "dns: a resolver under a flood of queries in the names of others",
		Head: []string{
			"", "answered", "min .. max", "bar", "answered/s", "half", "99%", "truncated/s", "flood kpps", "taken kpps",
			"MB/s sent", "MB/s to others", "times", "bar", "",
		},
		Notes: b.notes(),
	}
	for _, c := range b.cases {
		bars := c.bars(b.Outcome.Name)
		b.Outcome.Bars = append(b.Outcome.Bars, bars...)
		b.Outcome.Results = append(b.Outcome.Results, c.result(b.Outcome.Name))
		t.AddRow(c.cells(bars)...)
		if c.unsteady() {
			t.AddNote("~ unsteady: the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread)
		}
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
	b.Outcome.Ranked = append(b.Outcome.Ranked, b.ranking())
}

// ranking is what the clients get.
func (b *dnsBuilder) ranking() report.Ranking {
	r := report.Ranking{Title: "dns: clients' queries answered in full, per second", Unit: "answers/s"}
	for _, c := range b.cases {
		r.Add(c.flood.label+": "+c.guard.label, c.figure((*dnsVisit).perSecond), 1, c.unsteady())
	}
	return r
}

// unsteady reports whether the figures are doubtful.
func (c *dnsTestCase) unsteady() bool { return c.figure((*dnsVisit).answered).Unsteady() }

// bars compare what clients and victims get behind Floodwall with what they should.
func (c *dnsTestCase) bars(experiment string) []*report.Bar {
	if c.guard.policy == "" || len(c.visits) == 0 {
		return nil
	}
	name := experiment + "/" + c.name()
	bars := []*report.Bar{report.AtLeast(name+" answered", c.figure((*dnsVisit).answered).Median(), leastAnswered)}
	if c.flood.from != "" {
		bars = append(bars, report.AtMost(name+" amplification", c.figure((*dnsVisit).amplification).Median(), mostReflected))
	}
	return bars
}

// cells are a row as text.
func (c *dnsTestCase) cells(bars []*report.Bar) []string {
	cells := make([]string, 15)
	cells[0], cells[14] = c.flood.label+": "+c.guard.label, c.missing
	if len(c.visits) == 0 {
		return cells
	}
	shares := c.figure((*dnsVisit).answered)
	percent := func(v float64) string { return fmt.Sprintf("%.2f%%", 100*v) }
	cells[1], cells[2] = percent(shares.Median()), percent(slices.Min(shares))+" .. "+percent(slices.Max(shares))
	cells[4] = fmt.Sprintf("%.0f", c.figure((*dnsVisit).perSecond).Median())
	for i, share := range []float64{0.5, 0.99} {
		cells[5+i] = lab.Millis(time.Duration(c.figure(func(v *dnsVisit) float64 { return float64(v.percentile(share)) }).Median()))
	}
	cells[7] = fmt.Sprintf("%.0f", c.figure(func(v *dnsVisit) float64 { return float64(v.truncated) / v.time.Seconds() }).Median())
	for i, bar := range bars {
		cells[[]int{3, 13}[i]] = bar.String()
	}
	cells[14] = report.Choice(c.unsteady(), "~", "")
	if c.flood.from == "" {
		return cells
	}
	for i, figure := range []struct {
		of     func(*dnsVisit) float64
		digits int
	}{{sentKpps, 0}, {takenKpps, 0}, {sentMB, 1}, {othersMB, 1}, {(*dnsVisit).amplification, 2}} {
		cells[8+i] = fmt.Sprintf("%.*f", figure.digits, c.figure(figure.of).Median())
	}
	return cells
}

func sentKpps(v *dnsVisit) float64  { return float64(v.flood) / v.took.Seconds() / 1e3 }
func takenKpps(v *dnsVisit) float64 { return float64(v.received) / v.took.Seconds() / 1e3 }
func sentMB(v *dnsVisit) float64    { return float64(v.bytes) / v.took.Seconds() / 1e6 }
func othersMB(v *dnsVisit) float64  { return float64(v.othersBytes) / v.took.Seconds() / 1e6 }

// result is the row for programs.
func (c *dnsTestCase) result(experiment string) lab.Result {
	r := lab.Result{Name: experiment + "/" + c.name(), Runs: len(c.visits), Note: c.missing}
	if len(c.visits) == 0 {
		return r
	}
	r.Note = report.Choice(c.unsteady(), "~", "")
	add := func(unit string, of func(*dnsVisit) float64) {
		figures := c.figure(of)
		r.Metrics = append(r.Metrics, figures.Metric(unit))
	}
	add("answered", (*dnsVisit).answered)
	add("answered/s", (*dnsVisit).perSecond)
	add("p50-ns", func(v *dnsVisit) float64 { return float64(v.percentile(0.5)) })
	add("p99-ns", func(v *dnsVisit) float64 { return float64(v.percentile(0.99)) })
	add("truncated", func(v *dnsVisit) float64 { return float64(v.truncated) })
	if c.flood.from == "" {
		return r
	}
	add("flood-kpps", sentKpps)
	add("taken-kpps", takenKpps)
	add("sent-B", func(v *dnsVisit) float64 { return float64(v.bytes) })
	add("others-B", func(v *dnsVisit) float64 { return float64(v.othersBytes) })
	add("amplification", (*dnsVisit).amplification)
	return r
}
