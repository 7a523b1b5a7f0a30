package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// What must hold behind Floodwall. Queues of the lab's wires lose datagrams of clients, too: see notes.
const (
	leastTalk     = 0.999 // of the datagrams of known clients, answered beside a flood
	leastServed   = 0.99  // of newcomers who prove their address
	mostWait      = 2     // times the 99th percentile without a flood
	leastUnharmed = 0.98  // of the rate and the median wait without protection, while there is no flood
)

// notes are the choices made.
func (b *udpBuilder) notes() []string {
	return []string{
		fmt.Sprintf("Clients: %d with a port each, of %d addresses, each in a /24 of its own, send %s datagrams a second together. The service sends", udpClients, len(clientAddrs()), report.CountText(udpRate)),
		fmt.Sprintf("each back. An answer counts that comes within %v; times are of answers. The flood is from random sources, half of it first", udpTimeout),
		"packets of the protocol and half such as follow them, without an identifier. Of quic all are such: an Initial is too long for a mix.",
		"Before the first round all clients talk until Floodwall knows them, without a flood. No identifier is issued: clients are known by",
		"their addresses and ports. Rounds have what is without a flood first, and floods are forgotten before the next round.",
		fmt.Sprintf("Newcomers are %d others of the same networks who come during the flood; each sends %d datagrams in %v. It is served when one is", udpClients, int(newcomerRate*newcomerTime.Seconds())/udpClients, newcomerTime),
		"answered; with a2s and raknet, when it has sent its challenge or cookie back and has the answer. Limits of nft and hashlimit are",
		"per source, twice what a client sends; their tables have 65,536 places.",
		fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns. CPU %d has the attacker, and before it the clients; CPU %d has the", b.Rounds, udpVisitTime(b.Session), rig.SourceCPU, rig.ReceiverCPU),
		"service and, before it, the receive thread. Clients and attacker have a wire each: see dns.",
	}
}

// figure is one of each visit.
func (c *udpCase) figure(of func(*udpVisit) float64) (all report.Samples) {
	for _, v := range c.visits {
		all = append(all, of(v))
	}
	return all
}

func udpShare(v *udpVisit) float64     { return v.Share() }
func udpPerSecond(v *udpVisit) float64 { return float64(v.Answered) / v.Took.Seconds() }
func udpP99(v *udpVisit) float64       { return float64(v.Latency.P99) }
func udpHalf(v *udpVisit) float64      { return float64(v.Latency.P50) }
func udpServed(v *udpVisit) float64    { return float64(v.newcomers.Clients) / udpClients }
func udpTaken(v *udpVisit) float64     { return v.flood }

// find returns the measured case of a load and guards that are wanted; nil when there is none.
func (b *udpBuilder) find(l *udpLoad, wants func(udpGuard) bool) *udpCase {
	i := slices.IndexFunc(b.cases, func(c *udpCase) bool { return c.load == l && wants(c.guard) && len(c.visits) > 0 })
	if i < 0 {
		return nil
	}
	return b.cases[i]
}

// bars compare what clients get behind Floodwall's protection with what they should.
func (b *udpBuilder) bars(c *udpCase) (bars []*report.Bar) {
	if c.site == nil || !c.site.knows || len(c.visits) == 0 || c.unsteady() {
		return nil
	}
	name := b.Outcome.Name + "/" + c.name()
	switch c.load {
	case udpFlood:
		bars = append(bars, report.AtLeast(name+" answered", c.figure(udpShare).Median(), leastTalk))
		if c.site.service.Opens != "" {
			bars = append(bars, report.AtLeast(name+" newcomers", c.figure(udpServed).Median(), leastServed))
		}
		if own := b.find(udpQuiet, func(g udpGuard) bool { return g.name == c.guard.name }); own != nil {
			bars = append(bars, report.AtMost(name+" p99", c.figure(udpP99).By(own.figure(udpP99)).Median(), mostWait))
		}
	case udpBusy:
		if other := b.find(c.load, func(g udpGuard) bool { return g.rival }); other != nil {
			bars = append(bars, report.AtLeast(name+" rate", c.figure(udpPerSecond).By(other.figure(udpPerSecond)).Median(), leastUnharmed))
			bars = append(bars, report.AtLeast(name+" median", other.figure(udpHalf).By(c.figure(udpHalf)).Median(), leastUnharmed))
		}
	}
	return bars
}

// publish adds the table, the results and the bars to the outcome.
func (b *udpBuilder) publish() {
	t := &report.Table{
		Title: "udp: a UDP service under a flood of datagrams of its own kind",
		Head:  []string{"", "answered", "min .. max", "answered/s", "median", "99%", "bar", "bar", "bar", "newcomers served", "flood taken kpps", ""},
		Notes: b.notes(),
	}
	for _, l := range udpLoads {
		for _, c := range b.cases {
			if c.load != l {
				continue
			}
			bars := b.bars(c)
			b.Outcome.Bars = append(b.Outcome.Bars, bars...)
			b.Outcome.Results = append(b.Outcome.Results, c.result(b.Outcome.Name))
			t.AddRow(c.cells(bars)...)
		}
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
	b.Outcome.Ranked = append(b.Outcome.Ranked, b.ranking())
}

// ranking is what known clients get during the flood.
func (b *udpBuilder) ranking() report.Ranking {
	r := report.Ranking{Title: "udp: datagrams of known clients answered beside 1 Mpps, per second", Unit: "answers/s"}
	for _, c := range b.cases {
		if c.load == udpFlood {
			r.Add(c.guard.label, c.figure(udpPerSecond), 1, c.unsteady())
		}
	}
	return r
}

// unsteady reports whether the figures are doubtful.
func (c *udpCase) unsteady() bool { return c.figure(udpPerSecond).Unsteady() }

// cells are a row as text.
func (c *udpCase) cells(bars []*report.Bar) []string {
	cells := make([]string, 12)
	cells[0], cells[11] = c.label(), c.missing
	if len(c.visits) == 0 {
		return cells
	}
	shares := c.figure(udpShare)
	percent := func(v float64) string { return fmt.Sprintf("%.2f%%", 100*v) }
	cells[1], cells[2] = percent(shares.Median()), percent(slices.Min(shares))+" .. "+percent(slices.Max(shares))
	cells[3] = fmt.Sprintf("%.0f", c.figure(udpPerSecond).Median())
	cells[4] = lab.Millis(time.Duration(c.figure(udpHalf).Median()))
	cells[5] = lab.Millis(time.Duration(c.figure(udpP99).Median()))
	for i, bar := range bars {
		cells[6+i] = bar.String()
	}
	if c.load.flood > 0 {
		cells[9] = percent(c.figure(udpServed).Median())
		cells[10] = fmt.Sprintf("%.0f", c.figure(udpTaken).Median()/1e3)
	}
	cells[11] = report.Choice(c.unsteady(), "~", "")
	return cells
}

// result is a row for programs.
func (c *udpCase) result(experiment string) lab.Result {
	r := lab.Result{Name: experiment + "/" + c.name(), Runs: len(c.visits), Note: c.missing}
	if len(c.visits) == 0 {
		return r
	}
	r.Note = report.Choice(c.unsteady(), "~", "")
	r.Metrics = []lab.Metric{
		c.figure(udpShare).Metric("answered"), c.figure(udpPerSecond).Metric("answered/s"), c.figure(udpHalf).Metric("half-ns"), c.figure(udpP99).Metric("p99-ns"),
	}
	if c.load.flood > 0 {
		r.Metrics = append(r.Metrics, c.figure(udpServed).Metric("newcomers-served"), c.figure(udpTaken).Metric("flood-pps"))
	}
	return r
}
