// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// The units of the figures of rows. The share of the base is an additional figure; its unit is RateTable.By.
const (
	timePer = "ns/op"
	mpps    = "Mpps"
	ofLeast = "of-least"
	xRival  = "x-rival"
)

// publish adds the table, its results, its bars and its ranking to the outcome.
func (t *RateTable) publish(o *report.Outcome) {
	t.Title += t.cores.suffix()
	t.Prefix, t.Results, t.Columns = t.cores.prefix(), []string{timePer, mpps, ofLeast}, t.columns()
	t.Ranking = &Ranking{Title: t.Title, Unit: mpps, Figure: mpps, Per: 1}
	share := func(unit, of string, by *Row) {
		if by != nil {
			t.Shares = append(t.Shares, Share{Unit: unit, Of: of, By: func(*Row) *Row { return by }})
		}
	}
	share(ofLeast, mpps, t.least)
	if t.least != nil {
		t.Ranking.Limit = t.least.Name
	}
	if share(t.By, timePer, t.Base); t.By != "" {
		t.Results = append(t.Results, t.By)
	}
	share(xRival, mpps, t.Rival)
	t.Results = append(t.Results, xRival)
	t.Marks = []Mark{
		{Sign: "nothing arrived: others had the CPUs", On: func(r *Row) bool { return !r.Measured() }},
		{
			Sign: "~", On: (*Row).Doubtful,
			Note: fmt.Sprintf("~ unsteady: the interval is wider than %.0f%% of the figure, or others had the receiving CPU.", 100*report.UnsteadySpread),
		},
	}
	for _, r := range t.Rows {
		if failed := r.failed(); r.Measured() && failed > 0 {
			t.Marks = append(t.Marks, Mark{
				Sign: "!", On: func(other *Row) bool { return other == r },
				Note: fmt.Sprintf("! nothing arrived in %d of %d rounds, which are left out: others had the CPUs.", failed, len(r.Rounds)),
			})
		}
	}
	t.Publish(o)
}

// columns returns the columns of a table of costs, or of shares of the smallest program's rate.
func (t *RateTable) columns() (all []Column) {
	rate, per := Column{Head: mpps, Unit: mpps, Show: Digits(2, 1)}, Column{Head: "ns/packet", Unit: mpps, Show: func(s report.Samples) string { return fmt.Sprintf("%.1f", 1e3/s.Median()) }}
	if t.Base != nil {
		if slices.ContainsFunc(t.Rows, func(r *Row) bool { return r.Article != nil }) {
			all = Articles("article kpps", "article's cost")
		}
		return append(all, rate, Column{Head: "min .. max", Unit: mpps, Show: Range(2, 1)}, per, Column{Head: "cost", Text: t.costText})
	}
	all = []Column{rate, per, {Head: "of least", Unit: ofLeast, Show: Digits(2, 1)}, {Head: "from .. to", Unit: ofLeast, Show: func(s report.Samples) string {
		low, high := s.Interval()
		return fmt.Sprintf("%.2f .. %.2f", low, high)
	}}}
	if t.Rival != nil {
		all = append(all, Column{Head: "x " + t.Rival.Label, Unit: xRival, Show: Digits(2, 1)})
	}
	return all
}

// costText returns the cost of a row above the base.
func (t *RateTable) costText(r *Row) string {
	times := t.Figure(r, t.By)
	switch {
	case r == t.Base && r.Measured():
		return "baseline"
	case len(times) == 0:
		return ""
	}
	return fmt.Sprintf("%+.0f%%", 100*(times.Median()-1))
}

// keep removes the rows that are not wanted. It keeps the rows that others are compared with.
func (t *RateTable) keep(wanted func(row string) bool) {
	t.Rows = slices.DeleteFunc(t.Rows, func(r *Row) bool {
		return r != t.least && r != t.Base && r != t.Rival && !wanted(r.Name)
	})
}

// Measured reports whether the row has figures, so that others can be divided by them.
func (r *Row) Measured() bool { return len(r.Figure(timePer)) > 0 }

// failed returns the number of rounds in which nothing arrived.
func (r *Row) failed() int { return len(r.Rounds) - len(r.Figure(timePer)) }

// Doubtful reports whether the times per packet of the row are doubtful. For rows that were measured together with the smallest program, it judges the
// shares of the same rounds.
func (r *Row) Doubtful() bool {
	if of := r.Figure(ofLeast); len(of) > 0 {
		return of.Unsteady()
	}
	times := r.Figure(timePer)
	return len(times) > 0 && (2*r.Figure(Others).Sum() > float64(len(r.Rounds)) || 2*r.failed() >= len(r.Rounds) || times.Unsteady())
}

// Cores describes the cores on which the source and the receiver run.
type Cores int

const (
	// twoCores runs source and receiver on separate cores. On veth, the receiver fetches each frame from the other core's cache.
	twoCores Cores = iota

	// OneCore runs both on one core. Each frame is in the cache of this core, similar to a frame that a network card has written there.
	OneCore
)

// On returns a copy of the table for other cores, without measurements and goals.
func (t *RateTable) On(c Cores) *RateTable {
	other := *t
	other.cores, other.Rows, other.Notes = c, nil, slices.Clone(t.Notes)
	for _, r := range t.Rows {
		clone := *r
		clone.Rounds, clone.Goals = nil, nil
		other.Rows = append(other.Rows, &clone)
		switch r {
		case t.least:
			other.least = &clone
		case t.Base:
			other.Base = &clone
		case t.Rival:
			other.Rival = &clone
		}
	}
	return &other
}

// cpu returns the CPU of the source.
func (c Cores) cpu() int {
	if c == OneCore {
		return ReceiverCPU
	}
	return SourceCPU
}

// suffix returns the text after titles, and prefix the text before the names of results.
func (c Cores) suffix() string {
	return report.Choice(c == OneCore, ", source and receiver on one core", ", source and receiver on a core each")
}

func (c Cores) prefix() string { return report.Choice(c == OneCore, "one-core/", "") }
