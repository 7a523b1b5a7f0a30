// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
)

// shares returns the shares of dropped packets in the sweep.
func (b *placementBuilder) shares() []float64 {
	if b.Quick {
		return []float64{0.0001, 0.01, 0.1, 0.2, 0.5, 1}
	}
	return []float64{0.0001, articleShare, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1}
}

// rowRounds returns the number of measurements of a row, and the time of each. There are many of them because medians of ratios must show differences
// of some percent.
func rowRounds(s *rig.Session) (int, time.Duration) { return 4*s.Rounds + 1, s.Window / 2 }

// cpuShare is the unit of the share of a CPU that packets at the article's rate take.
const cpuShare = "cpu-%"

// compare measures the ways for which the function which returns true, in turn, with these flows at the article's rate. It returns a table with their
// rows.
func (b *placementBuilder) compare(ctx context.Context, what, prefix string, flows []lab.Flow, which func(*way) bool) (*rig.Table, error) {
	t := &rig.Table{Results: []string{"ns/op", cpuShare}, Marks: []rig.Mark{{
		Sign: "~", On: (*rig.Row).Doubtful, Note: fmt.Sprintf("~ unsteady: others had the receiving CPU, or the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread),
	}}}
	var probes []*rig.Probe
	for _, w := range b.ways {
		if !which(w) {
			continue
		}
		r := &rig.Row{Name: prefix + w.name, Label: w.label, Kind: w.name, Missing: w.missing}
		if prefix == "drop/" {
			r.Article = []string{w.article}
		}
		t.Rows = append(t.Rows, r)
		if w.missing == "" {
			p := &rig.Probe{Label: what + ", " + w.label, Subject: w.subject, Flows: flows, Row: r}
			b.probes[r], probes = p, append(probes, p)
		}
	}
	rounds, window := rowRounds(b.Session)
	err := b.Probes(ctx, probes, rounds, articleRate, uint64(articleRate*window.Seconds()))
	for _, r := range t.Rows {
		for _, read := range r.Rounds {
			read[cpuShare] = 100 * read["ns/op"] * articleRate / 1e9
		}
	}
	return t, err
}

// The function by adds the columns of the table of a test: the article's figure below head, CPU, its spread, time per packet, and the time as a multiple of the
// row base.
func (b *placementBuilder) by(t *rig.Table, head, times, base string) {
	t.Shares = []rig.Share{{Unit: "times", Of: "ns/op", By: func(*rig.Row) *rig.Row { return t.Find(base) }}}
	t.Columns = append(rig.Articles(head), []rig.Column{
		{Head: "CPU", Unit: cpuShare, Show: func(s report.Samples) string { return rig.Digits(2, 1)(s) + "%" }},
		{Head: "min .. max", Unit: cpuShare, Show: rig.Range(2, 1)}, {Head: "ns/packet", Unit: "ns/op", Show: rig.Digits(0, 1)},
		{Head: times, Unit: "times", Show: func(s report.Samples) string { return report.TimesText(s.Median()) }},
	}...)
}

// drops runs the first test: all packets are dropped.
func (b *placementBuilder) drops(ctx context.Context) error {
	t, err := b.compare(ctx, "all dropped", "drop/", []lab.Flow{floodFlow}, func(w *way) bool { return !w.none })
	t.Title = fmt.Sprintf("placement: %s packets/s to the router itself, all dropped, by a router with %s routes",
		report.CountText(articleRate), report.CountText(b.Routes))
	t.Notes = b.notes()
	b.by(t, "article's CPU", "of iptables in raw", "drop/iptables/raw")
	t.Above = func(line []*rig.Row) []string {
		return report.Choice(line[0] == t.Rows[0], []string{"nothing (background)", "1.5%", "", "", "", "", ""}, nil)
	}
	t.Publish(b.Outcome)
	b.claim("filter costs about 15% more than raw when all is dropped", "12% of a CPU to 10%", "iptables in filter costs 5% to 30% more than in raw",
		t.Find("drop/iptables/filter"), t.Find("drop/iptables/raw"), 1.05, 1.30)
	return err
}

// streams runs the second test: nearly all packets are forwarded. The article does not name the sources of its streams. They are measured from other
// sources than the rule's, and without Quick also from the rule's source.
func (b *placementBuilder) streams(ctx context.Context) error {
	others, err := b.forwarded(ctx, "forwarded", "from other sources", "forward/", false)
	if err == nil && !b.Quick {
		_, err = b.forwarded(ctx, "forwarded from the rule's source", "from the rule's source to its port", "forward-own/", true)
	}
	b.claim("filter is slightly cheaper when nearly all is forwarded", "155 million packets skip the rule",
		"iptables in raw costs up to 10% more than in filter", others.Find("forward/iptables/raw"), others.Find("forward/iptables/filter"), 1, 1.10)
	return err
}

// forwarded measures streams from other sources than the rule's, or with own from the rule's source.
func (b *placementBuilder) forwarded(ctx context.Context, what, from, prefix string, own bool) (*rig.Table, error) {
	t, err := b.compare(ctx, what, prefix, b.mixed(articleShare, own), func(w *way) bool { return !w.all })
	t.Title = fmt.Sprintf("placement: %s packets/s in four streams %s, forwarded, and %s of it dropped",
		report.CountText(articleRate), from, percent(articleShare))
	b.by(t, "", "of no rule", prefix+"no-rule")
	t.Publish(b.Outcome)
	return t, err
}

// claim judges a claim about the cost of one row divided by that of the other.
func (b *placementBuilder) claim(text, article, rule string, one, other *rig.Row, least, most float64) {
	c := ratioClaim(report.OpenClaim(text, article, rule), one, other, "ns/op", least, most, (*rig.Row).Doubtful)
	b.Outcome.Claims = append(b.Outcome.Claims, c)
}

// percent formats a share in percent.
func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }

// notes returns descriptions of the choices that the article leaves open.
func (b *placementBuilder) notes() []string {
	rounds, window := rowRounds(b.Session)
	return []string{
		fmt.Sprintf("Article: Swer, a virtual router with %s routes over some 50 next hops; conntrack loaded, NOTRACK for everything in raw. Its",
			report.CountText(rig.ArticleRoutes)),
		"tool is iptables: here, iptables-legacy, with both tables there in any case. The rule drops UDP from one source to port",
		fmt.Sprintf("%d of the router's own addresses; by nft and by Floodwall's nftables, another table has notrack. The table of routes", rulePort),
		fmt.Sprintf("took %.1f s (median of %d routers, one for each row but those of XDP).", b.loaded.Median(), len(b.loaded)),
		fmt.Sprintf("CPU: the receive thread's own time at %s packets/s, source and receiver on one core; its background is 0 when nothing",
			report.CountText(articleRate)),
		fmt.Sprintf("comes. Medians of %d rounds of %v in which the rows take turns. Forwarded packets go on to a host that discards them, whose", rounds, window),
		"time does not count.",
	}
}

// mostAbove is the highest cost of the automatic choice, as a multiple of the better fixed stage's cost.
const mostAbove = 1.03

// sweep measures the lines of a chart for each share, where they cross, and Floodwall's choice. It publishes all shares that were measured.
func (b *placementBuilder) sweep(ctx context.Context) error {
	var shares []float64
	t := &rig.Table{
		Title: "placement: nanoseconds a packet, by the share that is dropped; the others are forwarded", Head: "dropped",
		Notes: []string{
			"Automatic: where Floodwall puts the rule on a target, by the costs that it has measured here and the packets seen. Above",
			"the better: what that costs more than the better of Floodwall's raw and filter, in the median of the rounds.",
		},
	}
	defer func() { b.publishSweep(t, shares) }()
	for _, share := range b.shares() {
		line := percent(share)
		step, err := b.compare(ctx, line+" dropped", "dropped="+line+"/", b.mixed(share, false), func(w *way) bool { return w.swept && w.missing == "" })
		if err != nil {
			return err
		}
		t.Results, t.Marks = step.Results, step.Marks
		for _, r := range step.Rows {
			if len(shares) == 0 {
				t.Columns = append(t.Columns, rig.Column{Head: r.Label, Load: r.Kind, Unit: "ns/op", Show: rig.Digits(0, 1)})
			}
			r.Line, r.Label, r.Load = line, line, r.Kind
		}
		shares, t.Rows = append(shares, share), append(t.Rows, step.Rows...)
	}
	return nil
}

// rowsOf returns the rows of a way, by share.
func rowsOf(t *rig.Table, way string) (all []*rig.Row) {
	for _, r := range t.Rows {
		if r.Kind == way {
			all = append(all, r)
		}
	}
	return all
}

// publishSweep adds the chart, and the table with a line for each share.
func (b *placementBuilder) publishSweep(t *rig.Table, shares []float64) {
	if len(shares) == 0 {
		return
	}
	for _, c := range t.Columns {
		curve := report.Curve{
			Name: "placement/sweep/" + c.Load, Chart: "CPU over the share of packets that are dropped", Label: c.Head,
			X: "% dropped", Y: "% of a CPU", LogX: true,
		}
		for i, r := range rowsOf(t, c.Load) {
			curve.Points = append(curve.Points, [2]float64{100 * shares[i], r.Figure(cpuShare).Median()})
		}
		b.Outcome.Curves = append(b.Outcome.Curves, curve)
	}
	worst, choices := 1.0, map[string][3]string{}
	raw, filter := rowsOf(t, "floodwall/nftables/raw"), rowsOf(t, "floodwall/nftables/filter")
	for i := range min(len(raw), len(filter)) { // none when nft is not installed
		choice, times := b.automatic(raw[i], filter[i])
		choices[raw[i].Line], worst = choice, max(worst, times)
	}
	for i, head := range []string{"automatic, nftables", "above the better", "automatic, xdp"} {
		t.Columns = append(t.Columns, rig.Column{Head: head, Text: func(r *rig.Row) string { return choices[r.Line][i] }})
	}
	b.crossings(t, t.Publish(b.Outcome), shares, worst)
}

// automatic formats the automatic choices at a share. The choice for nftables is followed by its cost, as a multiple of the cost of the better stage.
// The parameter times is this multiple.
func (b *placementBuilder) automatic(raw, filter *rig.Row) (choice [3]string, times float64) {
	arrived, dropped := seen(b.probes[raw])
	on := func(t plan.Target) plan.Stage {
		stage, err := choose(b.policy, b.costs, t, arrived, dropped)
		return report.Choice(err == nil, stage, plan.Stage(fmt.Sprint(err)))
	}
	chosen, xdp := on(plan.TargetNftables), string(on(plan.TargetXDP))
	r := map[plan.Stage]*rig.Row{plan.StageRaw: raw, plan.StageFilter: filter}[chosen]
	if r == nil {
		return [3]string{string(chosen), "", xdp}, math.Inf(1)
	}
	times = above(r, raw, filter)
	return [3]string{string(chosen), fmt.Sprintf("%+.1f%%", 100*(times-1)), xdp}, times
}

// seen returns the number of packets, and the number of packets of the first flow, which is dropped.
func seen(p *rig.Probe) (all, first uint64) {
	for _, n := range p.Sent {
		all += n
	}
	return all, p.Sent[0]
}

// crossings adds the share above which filter costs more than raw, and the highest cost of the automatic choice, as a multiple of the better stage's.
func (b *placementBuilder) crossings(t *rig.Table, shown *report.Table, shares []float64, worst float64) {
	o := b.Outcome
	for _, tool := range []string{"iptables", "floodwall/nftables"} {
		raw, filter := rowsOf(t, tool+"/raw"), rowsOf(t, tool+"/filter")
		if len(raw) == 0 || len(filter) == 0 {
			continue
		}
		at := crossing(shares, filter, raw)
		if math.IsNaN(at) {
			shown.AddNote("%s: the lines of raw and filter do not cross.", tool)
			continue
		}
		shown.AddNote("%s: raw costs less than filter from %s dropped on, by straight lines through all points.", tool, percent(at))
		o.Results = append(o.Results, lab.Result{
			Name: "placement/crossing/" + tool, Runs: len(shares), Metrics: []lab.Metric{{Value: 100 * at, Unit: "dropped-%"}},
		})
	}
	bar := report.AtMost("placement/automatic over the better fixed stage", worst, mostAbove)
	o.Bars = append(o.Bars, bar)
	shown.AddNote("The automatic choice costs at most %.3f times what the better of raw and filter does: bar %s.", worst, bar)
}
