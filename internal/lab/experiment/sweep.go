package experiment

import (
	"fmt"
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// sweep is what was measured share by share.
type sweep struct {
	*placementBuilder
	lines  []*way
	shares []float64
	worst  float64 // times the better stage's cost that the automatic choice costs, of all shares
}

// publishSweep publishes the chart, where its lines cross, and what Floodwall chooses at each step, as far as it came.
func (b *placementBuilder) publishSweep() {
	s := &sweep{placementBuilder: b, shares: b.shares(), worst: 1}
	for _, w := range b.ways {
		if w.swept && w.missing == "" {
			s.lines = append(s.lines, w)
			n := slices.IndexFunc(w.sweep, func(p *rig.Probe) bool { return !measured(p) })
			s.shares = s.shares[:min(len(s.shares), report.Choice(n < 0, len(w.sweep), n))]
		}
	}
	if len(s.shares) == 0 {
		return
	}
	b.Outcome.Curves = append(b.Outcome.Curves, s.curves()...)
	t := s.table()
	b.Outcome.Tables = append(b.Outcome.Tables, t)
	s.crossings(t)
	bar := report.AtMost("placement/automatic over the better fixed stage", s.worst, mostAbove)
	b.Outcome.Bars = append(b.Outcome.Bars, bar)
	t.AddNote("The automatic choice costs at most %.3f times what the better of raw and filter does: bar %s.", s.worst, bar)
}

// mostAbove is how many times the better fixed stage's cost the automatic choice may cost.
const mostAbove = 1.03

// curves are the lines of the chart.
func (s *sweep) curves() (curves []report.Curve) {
	for _, w := range s.lines {
		c := report.Curve{
			Name: "placement/sweep/" + w.name, Chart: "CPU over the share of packets that are dropped", Label: w.label,
			X: "% dropped", Y: "% of a CPU", LogX: true,
		}
		for i, share := range s.shares {
			c.Points = append(c.Points, [2]float64{100 * share, placementCPU(w.sweep[i].Costs).Median()})
		}
		curves = append(curves, c)
	}
	return curves
}

// table has a row for each share.
func (s *sweep) table() *report.Table {
	t := &report.Table{
		Title: "placement: nanoseconds a packet, by the share that is dropped; the others are forwarded", Head: []string{"dropped"},
		Notes: []string{
			"Automatic: where Floodwall puts the rule on a target, by the costs that it has measured here and the packets seen. Above",
			"the better: what that costs more than the better of Floodwall's raw and filter, in the median of the rounds.",
		},
	}
	for _, w := range s.lines {
		t.Head = append(t.Head, w.label)
	}
	t.Head = append(t.Head, "automatic, nftables", "above the better", "automatic, xdp", "")
	for i, share := range s.shares {
		row, unsteady := []string{percent(share)}, false
		for _, w := range s.lines {
			p := w.sweep[i]
			s.Outcome.Results = append(s.Outcome.Results, result(p, fmt.Sprintf("placement/dropped=%s/%s", percent(share), w.name), ""))
			row, unsteady = append(row, fmt.Sprintf("%.0f", p.Costs.Median())), unsteady || p.Unsteady()
		}
		t.AddRow(append(append(row, s.automatic(i)...), mark(t, unsteady))...)
	}
	return t
}

// automatic is the choices at a share as text, the one for nftables with what it costs above the better stage.
func (s *sweep) automatic(i int) []string {
	fixed := map[plan.Stage]*rig.Probe{
		plan.StageRaw: s.way("floodwall/nftables/raw").sweep[i], plan.StageFilter: s.way("floodwall/nftables/filter").sweep[i],
	}
	arrived, dropped := seen(fixed[plan.StageRaw])
	on := func(t plan.Target) plan.Stage {
		stage, err := s.chooser.choose(t, arrived, dropped)
		return report.Choice(err == nil, stage, plan.Stage(fmt.Sprint(err)))
	}
	chosen := on(plan.TargetNftables)
	p := fixed[chosen]
	if p == nil {
		s.worst = math.Inf(1)
		return []string{string(chosen), "", string(on(plan.TargetXDP))}
	}
	times := above(p, fixed[plan.StageRaw], fixed[plan.StageFilter])
	s.worst = max(s.worst, times)
	return []string{string(chosen), fmt.Sprintf("%+.1f%%", 100*(times-1)), string(on(plan.TargetXDP))}
}

// seen is how many packets there were, and how many of the first flow, which is the one that is dropped.
func seen(p *rig.Probe) (all, first uint64) {
	for _, n := range p.Sent {
		all += n
	}
	return all, p.Sent[0]
}

// crossings adds where filter begins to cost more than raw.
func (s *sweep) crossings(t *report.Table) {
	for _, tool := range []string{"iptables", "floodwall/nftables"} {
		raw, filter := s.way(tool+"/raw"), s.way(tool+"/filter")
		if raw.missing != "" || filter.missing != "" {
			continue
		}
		n := len(s.shares)
		at := crossing(s.shares, filter.sweep[:n], raw.sweep[:n])
		if math.IsNaN(at) {
			t.AddNote("%s: the lines of raw and filter do not cross.", tool)
			continue
		}
		t.AddNote("%s: raw costs less than filter from %s dropped on, by straight lines through all points.", tool, percent(at))
		s.Outcome.Results = append(s.Outcome.Results, crossingResult(tool, at, n))
	}
}
