package experiment

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// packetcostClaim is a statement of the article. It also holds here if a ratio is between two bounds. The ratio is the time per packet of one row
// divided by that of another row.
type packetcostClaim struct {
	text        string
	article     float64
	rows, bases []string // the slowest of rows is compared with the fastest of bases
	least, most float64
	rule        string
}

// packetcostArticleClaims are the article's four claims, and the costs of the kinds of rules in its table. The article's own figures are rates, such
// as 280 kpps for dropping in raw.
var packetcostArticleClaims = []packetcostClaim{
	{
		"raw is only a little better than filter", 280.0 / 250, []string{"iptables/filter"}, []string{"iptables/" + baseCase},
		1, 1.25, "filter costs up to 25% more than raw",
	},
	{
		"position matters a little", 280.0 / 250, []string{"iptables/raw/rules=5"}, []string{"iptables/" + baseCase},
		1.02, 1.25, "5 rules before it cost 2% to 25% more",
	},
	{
		"set size does not matter", 1, setRows, setRows,
		0, 1.10, "the dearest of the three sizes costs at most 10% more than the cheapest",
	},
	{
		"dropping costs 2.5 times less than accepting", 280.0 / 106, []string{"iptables/accept/untracked"}, []string{"iptables/" + baseCase},
		2, 3.5, "accepting without conntrack costs 2 to 3.5 times what dropping in raw does",
	},
	addition("conntrack adds 20% to accepting", 106.0/87, "accept/tracked", "accept/untracked"),
	addition("an ipset adds 10% to dropping", 280.0/255, "set/n=1", baseCase),
	addition("a string match (bm) adds 10%", 280.0/255, "string/bm", baseCase),
	addition("a string match (kmp) adds 17%", 280.0/235, "string/kmp", baseCase),
	addition("hashlimit adds 20%", 280.0/225, "hashlimit", baseCase),
}

// addition returns a claim about the additional cost of one iptables case over another. The article's statement holds if this cost is above 0 and
// below three times the article's cost.
func addition(text string, article float64, row, base string) packetcostClaim {
	most := 1 + 3*(article-1)
	return packetcostClaim{
		text, article, []string{"iptables/" + row}, []string{"iptables/" + base}, 1.01, most,
		fmt.Sprintf("it costs 1%% to %.0f%% more, up to three times what the article has", 100*(most-1)),
	}
}

var setRows = []string{"iptables/set/n=1", "iptables/set/n=65000", "iptables/set/n=265000"}

// outcome judges the claims with the measurement on one core. The article also used one core. It compares the receive thread's own time per packet.
func outcome(t *rig.RateTable) (claims []report.Claim) {
	for _, c := range packetcostArticleClaims {
		judged := report.OpenClaim(c.text, report.TimesText(c.article), c.rule+", in time per packet with source and receiver on one core")
		if times := c.times(t); len(times) > 0 {
			judged = judged.Within(report.WithInterval(times), times, c.least, c.most, c.unsteady(t))
		}
		claims = append(claims, judged)
	}
	return claims
}

// untold returns the rows of those claims that cannot be decided yet with the measured figures.
func untold(t *rig.RateTable) (rows []*rig.Rate) {
	var names []string
	for _, c := range packetcostArticleClaims {
		if times := c.times(t); len(times) > 0 && !report.Told(times, c.least, c.most) {
			names = append(append(names, c.rows...), c.bases...)
		}
	}
	for _, r := range t.Rows {
		if slices.Contains(names, r.Name) {
			rows = append(rows, r)
		}
	}
	return rows
}

// times returns the time per packet of the slowest row divided by that of the fastest base, round by round. It returns nil if one of them was not
// measured.
func (c packetcostClaim) times(t *rig.RateTable) report.Samples {
	row, base := extreme(t, c.rows, -1), extreme(t, c.bases, 1)
	if row == nil || base == nil {
		return nil
	}
	return base.Rounds.By(row.Rounds).Positive()
}

func (c packetcostClaim) unsteady(t *rig.RateTable) bool {
	return slices.ContainsFunc(t.Rows, func(r *rig.Rate) bool {
		return (slices.Contains(c.rows, r.Name) || slices.Contains(c.bases, r.Name)) && r.Unsteady()
	})
}

// extreme returns the named row with the highest rate if sign is 1, or with the lowest rate if sign is -1. It returns nil if one of the rows was not
// measured.
func extreme(t *rig.RateTable, names []string, sign float64) (found *rig.Rate) {
	for _, name := range names {
		i := slices.IndexFunc(t.Rows, func(r *rig.Rate) bool { return r.Name == name && r.Measured() })
		if i < 0 {
			return nil
		}
		if r := t.Rows[i]; found == nil || sign*r.Arrived().Median() > sign*found.Arrived().Median() {
			found = r
		}
	}
	return found
}
