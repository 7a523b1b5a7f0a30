package experiment

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// leastShare is the share of what the CPUs take one after the other that they must take together, where they share little.
const leastShare = 0.90

// scaleCases are the rows. Each packet of the last two is charged to a limit, which writes to memory that all CPUs have in common: a
// cache line of the sender's prefix.
func scaleCases() []*scaleTestCase {
	udp := func(from string) lab.Flow {
		return rig.UDPFlood(lab.MustAddrs(from), rig.Server4, rig.SinkPort)
	}
	syns := rig.TCPFlood(lab.MustAddrs("128.0.0.0/2"), rig.Server4, 80, lab.SYN, lab.SYNOptions)
	limit := func(rate, per string) string {
		return fmt.Sprintf("default: drop\nchecks: off\nrules: [{name: limit, proto: udp, over: {rate: %s, per: from/%s}, then: drop}]\n", rate, per)
	}
	return []*scaleTestCase{
		{name: "least", label: "the least that a filter does", flow: udp("16.0.0.0/4")},
		{name: "drop", label: "floodwall: 20 rules that do not match", policy: rig.RulesPolicy(20), flow: udp("16.0.0.0/4")},
		{name: "limit-over", label: "floodwall: over a limit of 1000/s per /16", policy: limit("1000/s", "16"), flow: udp("64.0.0.0/10")},
		{name: "limit-within", label: "floodwall: within a limit of 1000/s per address", policy: limit("1000/s", "32"), flow: udp("64.0.0.0/10"), charged: true},
		{name: "syn", label: "floodwall: SYNs answered with cookies", policy: rig.SYNPolicy, flow: syns},
	}
}

// load loads the program of a case, which is attached while it is measured only.
func (b *scaleBuilder) load(ctx context.Context, c *scaleTestCase) (err error) {
	c.rates, c.shares = map[int]report.Samples{}, map[int]report.Samples{}
	if c.policy == "" {
		if c.program, err = rig.LoadPeerProgram(rig.Least); err != nil {
			return err
		}
	} else {
		a, err := b.site.Apply(ctx, c.policy, func(context.Context, control.Instance) error { return nil })
		if err != nil {
			return err
		}
		c.program = a.Program
	}
	b.Own(c.program)
	b.cases = append(b.cases, c)
	return nil
}

// publish adds the table, the results and the bars to the outcome.
func (b *scaleBuilder) publish() {
	counts := counts(len(b.wires))
	t := &report.Table{Title: "scale: packets on several CPUs at a time, each with a receive queue", Head: []string{""}}
	for _, n := range counts {
		t.Head = append(t.Head, report.Things(n, "CPU", "CPUs")+", Mpps")
		if n > 1 {
			t.Head = append(t.Head, "of these alone", "from .. to")
		}
	}
	t.Head = append(t.Head, "")
	for _, c := range b.cases {
		t.AddRow(b.row(c, counts)...)
	}
	t.Notes = []string{
		"Each CPU sends to a device of its own and receives there; one program with its maps is on all devices. A rate is packets per",
		"second of the receive threads' own time. Of these alone: the share of what the same CPUs take one after the other.",
		fmt.Sprintf("Medians of %d rounds of %v.", b.Rounds, b.Window),
		"~ unsteady: the interval is wide, or others had the CPUs.",
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
}

// row adds the results and the bars of a case, and returns its cells.
func (b *scaleBuilder) row(c *scaleTestCase, counts []int) []string {
	cells, unsteady := []string{c.label}, false
	for _, n := range counts {
		rates, shares := c.rates[n].Positive(), c.shares[n]
		r := lab.Result{Name: fmt.Sprintf("%s/%s/cpus=%d", b.Outcome.Name, c.name, n), Runs: len(rates)}
		if len(rates) == 0 {
			r.Note = "nothing arrived: others had the CPUs"
			cells = append(cells, "")
			if n > 1 {
				cells = append(cells, "", "")
			}
			b.Outcome.Results = append(b.Outcome.Results, r)
			continue
		}
		r.Metrics = append(r.Metrics, rates.Each(func(pps float64) float64 { return pps / 1e6 }).Metric("Mpps"))
		cells = append(cells, fmt.Sprintf("%.2f", rates.Median()/1e6))
		if n > 1 && len(shares) > 0 {
			low, high := shares.Interval()
			r.Metrics = append(r.Metrics, shares.Metric("of-alone"))
			cells = append(cells, fmt.Sprintf("%.2f", shares.Median()), fmt.Sprintf("%.2f .. %.2f", low, high))
			unsteady = unsteady || shares.Unsteady()
			if !c.charged {
				b.Outcome.Bars = append(b.Outcome.Bars, report.AtLeast(r.Name+" of alone", shares.Median(), leastShare))
			}
		} else if n > 1 {
			cells = append(cells, "", "")
		}
		b.Outcome.Results = append(b.Outcome.Results, r)
	}
	return append(cells, report.Choice(unsteady, "~", ""))
}
