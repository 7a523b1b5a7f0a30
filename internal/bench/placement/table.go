package bench

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
)

// cpu is the share of a CPU that packets at the article's rate take, for figures of nanoseconds for each.
func (s series) cpu() series {
	return s.each(func(ns float64) float64 { return 100 * ns * articleRate / 1e9 })
}

// cells are a probe as text: CPU, its spread, and time per packet.
func (p *probe) cells() []string {
	cpu := p.costs.cpu()
	return []string{
		fmt.Sprintf("%.2f%%", cpu.median()), fmt.Sprintf("%.2f .. %.2f", slices.Min(cpu), slices.Max(cpu)), fmt.Sprintf("%.0f", p.costs.median()),
	}
}

// result is a probe for programs. A probe that is not there was not measured.
func (p *probe) result(name, missing string) lab.Result {
	r := lab.Result{Name: name, Note: missing}
	if p == nil || len(p.costs) == 0 {
		return r
	}
	r.Runs, r.Note = len(p.costs), choice(p.unsteady(), "~", "")
	r.Metrics = []lab.Metric{p.costs.metric("ns/op"), p.costs.cpu().metric("cpu-%")}
	return r
}

// measured reports whether there are figures.
func (p *probe) measured() bool { return p != nil && len(p.costs) > 0 }

// publishDrops publishes the first test.
func (b *placeBuilder) publishDrops() {
	raw := b.way("iptables/raw").drops
	t := &Table{
		Title: fmt.Sprintf("placement: %s packets/s to the router itself, all dropped, by a router with %s routes", countText(articleRate), countText(b.Routes)),
		Head:  []string{"", "article's CPU", "CPU", "min .. max", "ns/packet", "of iptables in raw", ""},
		Notes: b.placeNotes(),
	}
	t.row("nothing (background)", "1.5%", "", "", "", "", "")
	for _, w := range b.ways {
		if !w.none {
			b.publish(t, w, w.drops, "placement/drop/"+w.name, w.article, raw)
		}
	}
	b.outcome.Tables = append(b.outcome.Tables, t)
	b.claim("filter costs about 15% more than raw when all is dropped", "12% of a CPU to 10%", "iptables in filter costs 5% to 30% more than in raw",
		b.way("iptables/filter").drops, raw, 1.05, 1.30)
}

// publishStreams publishes the second test.
func (b *placeBuilder) publishStreams() {
	b.publishForwarded("from other sources", "placement/forward/", func(w *way) *probe { return w.streams })
	if !b.Quick {
		b.publishForwarded("from the rule's source to its port", "placement/forward-own/", func(w *way) *probe { return w.own })
	}
	b.claim("filter is slightly cheaper when nearly all is forwarded", "155 million packets skip the rule",
		"iptables in raw costs up to 10% more than in filter", b.way("iptables/raw").streams, b.way("iptables/filter").streams, 1, 1.10)
}

func (b *placeBuilder) publishForwarded(from, prefix string, of func(*way) *probe) {
	none := of(b.way("no-rule"))
	t := &Table{
		Title: fmt.Sprintf("placement: %s packets/s in four streams %s, forwarded, and %s of it dropped", countText(articleRate), from, percent(articleShare)),
		Head:  []string{"", "", "CPU", "min .. max", "ns/packet", "of no rule", ""},
	}
	for _, w := range b.ways {
		if !w.all {
			b.publish(t, w, of(w), prefix+w.name, "", none)
		}
	}
	b.outcome.Tables = append(b.outcome.Tables, t)
}

// publish adds a row and its result.
func (b *placeBuilder) publish(t *Table, w *way, p *probe, name, article string, base *probe) {
	b.outcome.Results = append(b.outcome.Results, p.result(name, w.missing))
	row := []string{w.label, article, "", "", "", "", w.missing}
	if p.measured() {
		copy(row[2:], p.cells())
		row[6] = t.mark(p.unsteady())
	}
	if p.measured() && base.measured() {
		row[5] = fmt.Sprintf("%.2f x", p.costs.by(base.costs).median())
	}
	t.row(row...)
}

// mark is the sign of doubtful figures, which it explains.
func (t *Table) mark(unsteady bool) string {
	if unsteady {
		t.note("~ unsteady: others had the receiving CPU, or the rounds differ by more than %.0f%%", 100*unsteadySpread)
	}
	return choice(unsteady, "~", "")
}

// claim judges how many times the one's cost is the other's.
func (b *placeBuilder) claim(text, article, rule string, one, other *probe, least, most float64) {
	c := openClaim(text, article, rule)
	if one.measured() && other.measured() {
		times := one.costs.by(other.costs).median()
		c = c.found(fmt.Sprintf("%.3f x", times), times >= least && times <= most, one.unsteady() || other.unsteady())
	}
	b.outcome.Claims = append(b.outcome.Claims, c)
}

// placeNotes are the choices made where the article is silent.
func (b *placeBuilder) placeNotes() []string {
	rounds, window := b.placeRounds()
	return []string{
		fmt.Sprintf("Article: Swer, a virtual router with %s routes over some 50 next hops; conntrack loaded, NOTRACK for everything in raw. Its", countText(articleRoutes)),
		"tool is iptables: here, iptables-legacy, with both tables there in any case. The rule drops UDP from one source to port",
		fmt.Sprintf("%d of the router's own addresses; by nft and by Floodwall's nftables, another table has notrack. The table of routes", placePort),
		fmt.Sprintf("took %.1f s (median of %d routers, one for each row but those of XDP).", b.loaded.median(), len(b.loaded)),
		fmt.Sprintf("CPU: the receive thread's own time at %s packets/s, source and receiver on one core; its background is 0 when nothing", countText(articleRate)),
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
