package bench

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/cost"
)

// figure is a cost as it was measured.
type figure struct {
	value   float64 // nanoseconds, not below 0
	spread  float64 // between the rounds
	clamped bool    // it came out below 0
}

// figureOf is the median of rounds. What cannot be told from nothing may come out as less.
func figureOf(s series) figure {
	m := s.median()
	return figure{max(m, 0), s.spread(), m < 0}
}

// work is the figures of a stage.
type work struct{ hook, rule, set, limit, local, reach figure }

// work is what each of the stage's probes does beyond another, round by round.
func (p *stageProbes) work() (w work) {
	rule := p.many.costs.minus(p.one.costs).over(manyRules)
	hook := p.one.costs.minus(p.base.costs).minus(rule)
	beyond := func(q *probe, n float64) figure { return figureOf(q.costs.minus(p.one.costs).over(n).minus(rule)) }
	w.rule, w.hook = figureOf(rule), figureOf(hook)
	w.set, w.limit = beyond(p.sets, manySets), beyond(p.limits, manyLimits)
	if p.locals != nil {
		w.local = beyond(p.locals, manyLocals)
	}
	w.reach = figureOf(p.drop.costs.minus(hook).minus(rule))
	return w
}

// finish computes the model, and the table that shows it.
func (c *calibration) result() *Table {
	t := &Table{
		Title: "calibrate: nanoseconds that a packet costs on this host",
		Head:  []string{"", "drop, beside the rules", "stage in use", "a rule", "a set", "a limit", "own address", ""},
		Notes: append([]string{
			"The receive thread's own time, of packets of 128 octets that a router forwards, and for drops, of such to itself.",
			fmt.Sprintf("Medians, ± half the spread, of %d rounds; a rule is a part of %d, a set of %d, a limit of %d, an own address of %d.",
				c.Rounds+2, manyRules, manySets, manyLimits, manyLocals),
		}, c.missing...),
	}
	for _, p := range c.measured {
		w := p.work()
		c.model.Work[p.target+"/"+p.stage] = cost.Work{
			Hook: w.hook.value, Rule: w.rule.value, Set: w.set.value, Limit: w.limit.value, Local: w.local.value,
		}
		reach := ""
		if p.target != "iptables" { // what it reaches, nftables does as well
			c.model.Reach[p.stage], reach = w.reach.value, t.figure(w.reach)
		}
		local := ""
		if p.locals != nil {
			local = t.figure(w.local)
		}
		t.row(p.target+" at "+p.stage, reach, t.figure(w.hook), t.figure(w.rule), t.figure(w.set), t.figure(w.limit), local, "")
	}
	c.between(t)
	return t
}

// between adds what is between raw and filter.
func (c *calibration) between(t *Table) {
	track := figureOf(c.behind.tracked.costs.minus(c.behind.plain.costs))
	route := figureOf(c.behind.routed.costs.minus(c.behind.plain.costs))
	c.model.Conntrack, c.model.Route = track.value, route.value
	t.row("conntrack, before filter", t.figure(track), "", "", "", "", "", "")
	t.row("the table of routes, before filter", t.figure(route), "", "", "", "", "", "")
}

// figure is a cost as text.
func (t *Table) figure(f figure) string {
	if f.clamped {
		t.note("0* came out below nothing: less than can be told")
		return "0*"
	}
	return fmt.Sprintf("%.1f ±%.1f", f.value, f.spread/2)
}
