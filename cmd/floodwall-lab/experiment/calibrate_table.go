// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"math"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// picked is a function that selects some of the measured rounds.
type picked func(report.Samples) report.Samples

// A figure is computed from all rounds, and from each half of them. The difference between the halves shows the accuracy of the figure.
var (
	allRounds  picked = func(s report.Samples) report.Samples { return s }
	evenRounds picked = func(s report.Samples) report.Samples { return everySecond(s, 0) }
	oddRounds  picked = func(s report.Samples) report.Samples { return everySecond(s, 1) }
)

func everySecond(s report.Samples, first int) (out report.Samples) {
	for i := first; i < len(s); i += 2 {
		out = append(out, s[i])
	}
	return out
}

// of returns the cost of a packet at a probe. It is the minimum of the rounds, because every disturbance only adds time.
func (pick picked) of(p *rig.Probe) float64 {
	if rounds := pick(p.Costs); len(rounds) > 0 {
		return slices.Min(rounds)
	}
	return math.NaN()
}

// stageCost has the costs of a stage.
type stageCost struct {
	cost.Work
	reach float64
}

// cost returns the costs of a stage from the differences between its probes. A cost below 0 is not distinguishable from 0.
func (p *stageProbes) cost(pick picked) (c stageCost) {
	one := pick.of(p.one)
	rule := (pick.of(p.many) - one) / manyRules
	beyond := func(q *rig.Probe, n float64) float64 { return (pick.of(q)-one)/n - rule }
	c.Rule, c.Hook = rule, one-pick.of(p.base)-rule
	c.Set, c.Limit = beyond(p.sets, manySets), beyond(p.limits, manyLimits)
	if p.locals != nil {
		c.Local = beyond(p.locals, manyLocals)
	}
	c.reach = pick.of(p.drop) - c.Hook - rule
	return c
}

// positive returns the figures, with 0 in place of figures below 0.
func (c stageCost) positive() stageCost {
	for _, v := range []*float64{&c.Hook, &c.Rule, &c.Set, &c.Limit, &c.Local, &c.reach} {
		*v = max(*v, 0)
	}
	return c
}

// result completes the model, and returns a table that shows it.
func (c *calibration) result() *report.Table {
	t := &report.Table{
		Title: "calibrate: nanoseconds that a packet costs on this host",
		Head:  []string{"", "drop, beside the rules", "stage in use", "a rule", "a set", "a limit", "own address", ""},
		Notes: append([]string{
			"The receive thread's own time, of packets of 128 bytes that a router forwards, and for drops, of such to itself: the",
			fmt.Sprintf("least of %d rounds of %s packets. ± half the difference between every second round and the others. A rule is",
				probeRounds, report.CountText(int(packets(c.Session)))),
			fmt.Sprintf("a part of %d, a set of %d, a limit of %d, an own address of %d.", manyRules, manySets, manyLimits, manyLocals),
		}, c.missing...),
	}
	for _, p := range c.measured {
		all, even, odd := p.cost(allRounds), p.cost(evenRounds), p.cost(oddRounds)
		c.model.Work[p.target+"/"+p.stage] = all.positive().Work
		cells := []string{p.target + " at " + p.stage, ""}
		if p.target != "iptables" { // for iptables, the cost of packets before the stage is that of nftables
			c.model.Reach[p.stage] = all.positive().reach
			cells[1] = nanoseconds(t, all.reach, even.reach, odd.reach)
		}
		cells = append(cells, nanoseconds(t, all.Hook, even.Hook, odd.Hook), nanoseconds(t, all.Rule, even.Rule, odd.Rule),
			nanoseconds(t, all.Set, even.Set, odd.Set), nanoseconds(t, all.Limit, even.Limit, odd.Limit), "", "")
		if p.locals != nil {
			cells[6] = nanoseconds(t, all.Local, even.Local, odd.Local)
		}
		t.AddRow(cells...)
	}
	if c.plain != nil {
		c.model.Conntrack = c.between(t, "conntrack, before filter", c.tracked)
		c.model.Route = c.between(t, "the table of routes, before filter", c.routed)
	}
	return t
}

// between adds a table row for the work between raw and filter. It returns the cost of this work.
func (c *calibration) between(t *report.Table, label string, p *rig.Probe) float64 {
	beyond := func(pick picked) float64 { return pick.of(p) - pick.of(c.plain) }
	t.AddRow(label, nanoseconds(t, beyond(allRounds), beyond(evenRounds), beyond(oddRounds)), "", "", "", "", "", "")
	return max(beyond(allRounds), 0)
}

// nanoseconds returns a figure as text, with half the difference between the two halves of the rounds.
func nanoseconds(t *report.Table, v, even, odd float64) string {
	if v < 0 {
		t.AddNote("0* came out below nothing: less than can be told.")
		return "0*"
	}
	if doubt := math.Abs(even-odd) / 2; doubt >= 0 {
		return fmt.Sprintf("%.1f ±%.1f", v, doubt)
	}
	return fmt.Sprintf("%.1f", v)
}
