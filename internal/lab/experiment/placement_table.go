package experiment

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// placementCPU is the share of a CPU that packets at the article's rate take, for figures of nanoseconds for each.
func placementCPU(s report.Samples) report.Samples {
	return s.Each(func(ns float64) float64 { return 100 * ns * articleRate / 1e9 })
}

// cells are a probe as text: CPU, its spread, and time per packet.
func cells(p *rig.Probe) []string {
	cpu := placementCPU(p.Costs)
	return []string{
		fmt.Sprintf("%.2f%%", cpu.Median()), fmt.Sprintf("%.2f .. %.2f", slices.Min(cpu), slices.Max(cpu)), fmt.Sprintf("%.0f", p.Costs.Median()),
	}
}

// result is a probe for programs. A probe that is not there was not measured.
func result(p *rig.Probe, name, missing string) lab.Result {
	r := lab.Result{Name: name, Note: missing}
	if p == nil || len(p.Costs) == 0 {
		return r
	}
	r.Runs, r.Note = len(p.Costs), report.Choice(p.Unsteady(), "~", "")
	r.Metrics = []lab.Metric{p.Costs.Metric("ns/op"), placementCPU(p.Costs).Metric("cpu-%")}
	return r
}

// measured reports whether there are figures.
func measured(p *rig.Probe) bool { return p != nil && len(p.Costs) > 0 }

// publishDrops publishes the first test.
func (b *placementBuilder) publishDrops() {
	raw := b.way("iptables/raw").drops
	t := &report.Table{
		Title: fmt.Sprintf("placement: %s packets/s to the router itself, all dropped, by a router with %s routes",
			report.CountText(articleRate), report.CountText(b.Routes)),
		Head:  []string{"", "article's CPU", "CPU", "min .. max", "ns/packet", "of iptables in raw", ""},
		Notes: b.notes(),
	}
	t.AddRow("nothing (background)", "1.5%", "", "", "", "", "")
	for _, w := range b.ways {
		if !w.none {
			b.publish(t, w, w.drops, "placement/drop/"+w.name, w.article, raw)
		}
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
	b.claim("filter costs about 15% more than raw when all is dropped", "12% of a CPU to 10%", "iptables in filter costs 5% to 30% more than in raw",
		b.way("iptables/filter").drops, raw, 1.05, 1.30)
}

// publishStreams publishes the second test.
func (b *placementBuilder) publishStreams() {
	b.publishForwarded("from other sources", "placement/forward/", func(w *way) *rig.Probe { return w.streams })
	if !b.Quick {
		b.publishForwarded("from the rule's source to its port", "placement/forward-own/", func(w *way) *rig.Probe { return w.own })
	}
	b.claim("filter is slightly cheaper when nearly all is forwarded", "155 million packets skip the rule",
		"iptables in raw costs up to 10% more than in filter", b.way("iptables/raw").streams, b.way("iptables/filter").streams, 1, 1.10)
}

func (b *placementBuilder) publishForwarded(from, prefix string, of func(*way) *rig.Probe) {
	none := of(b.way("no-rule"))
	t := &report.Table{
		Title: fmt.Sprintf("placement: %s packets/s in four streams %s, forwarded, and %s of it dropped",
			report.CountText(articleRate), from, percent(articleShare)),
		Head: []string{"", "", "CPU", "min .. max", "ns/packet", "of no rule", ""},
	}
	for _, w := range b.ways {
		if !w.all {
			b.publish(t, w, of(w), prefix+w.name, "", none)
		}
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t)
}

// publish adds a row and its result.
func (b *placementBuilder) publish(t *report.Table, w *way, p *rig.Probe, name, article string, base *rig.Probe) {
	b.Outcome.Results = append(b.Outcome.Results, result(p, name, w.missing))
	row := []string{w.label, article, "", "", "", "", w.missing}
	if measured(p) {
		copy(row[2:], cells(p))
		row[6] = mark(t, p.Unsteady())
	}
	if measured(p) && measured(base) {
		row[5] = fmt.Sprintf("%.2f x", p.Costs.By(base.Costs).Median())
	}
	t.AddRow(row...)
}

// mark is the sign of doubtful figures, which it explains.
func mark(t *report.Table, unsteady bool) string {
	if unsteady {
		t.AddNote("~ unsteady: others had the receiving CPU, or the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread)
	}
	return report.Choice(unsteady, "~", "")
}

// claim judges how many times the one's cost is the other's.
func (b *placementBuilder) claim(text, article, rule string, one, other *rig.Probe, least, most float64) {
	c := report.OpenClaim(text, article, rule)
	if measured(one) && measured(other) {
		times := one.Costs.By(other.Costs)
		c = c.Within(report.WithInterval(times), times, least, most, one.Unsteady() || other.Unsteady())
	}
	b.Outcome.Claims = append(b.Outcome.Claims, c)
}

// notes are the choices made where the article is silent.
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

// crossingResult is the share from which on raw costs less than filter, for programs.
func crossingResult(tool string, share float64, steps int) lab.Result {
	return lab.Result{
		Name: "placement/crossing/" + tool, Runs: steps, Metrics: []lab.Metric{{Value: 100 * share, Unit: "dropped-%"}},
	}
}
