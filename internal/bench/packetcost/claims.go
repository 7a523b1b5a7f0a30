package packetcost

import (
	"fmt"
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/bench/rig"
)

// claim is something that the article says, and the rule by which it holds here: how many times the time per packet
// of one row that of another is, and between which bounds.
type claim struct {
	text        string
	article     float64
	rows, bases []string // of each, the dearest row and the cheapest base count
	least, most float64
	rule        string
}

// articleClaims are the article's four, and what its table says that a kind of rule adds. Its own figures are rates: 280 kpps
// for dropping in raw and so on.
var articleClaims = []claim{
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

// addition is a claim about what one of iptables' cases costs more than another. The article's word for it is taken for more
// than nothing, and less than three times as much.
func addition(text string, article float64, row, base string) claim {
	most := 1 + 3*(article-1)
	return claim{
		text, article, []string{"iptables/" + row}, []string{"iptables/" + base}, 1.01, most,
		fmt.Sprintf("it costs 1%% to %.0f%% more, up to three times what the article has", 100*(most-1)),
	}
}

var setRows = []string{"iptables/set/n=1", "iptables/set/n=65000", "iptables/set/n=265000"}

// outcome judges the claims by what was measured on one core, which is what the article had: by the receive thread's
// own time per packet.
func outcome(t *rig.RateTable) (claims []report.Claim) {
	for _, c := range articleClaims {
		judged := report.OpenClaim(c.text, report.TimesText(c.article), c.rule+", in time per packet with source and receiver on one core")
		if times, ok := c.times(t); ok {
			judged = judged.Found(report.TimesText(times), times >= c.least && times <= c.most, c.unsteady(t))
		}
		claims = append(claims, judged)
	}
	return claims
}

// times is how many times the time of the bases the rows take; false when one of them was not measured.
func (c claim) times(t *rig.RateTable) (float64, bool) {
	slowest, fastest := math.Inf(1), 0.0
	for _, name := range c.rows {
		slowest = min(slowest, rate(t, name))
	}
	for _, name := range c.bases {
		rate := rate(t, name)
		if !(rate > 0) {
			return 0, false
		}
		fastest = max(fastest, rate)
	}
	return fastest / slowest, slowest > 0
}

func (c claim) unsteady(t *rig.RateTable) bool {
	return slices.ContainsFunc(t.Rows, func(r *rig.Rate) bool {
		return (slices.Contains(c.rows, r.Name) || slices.Contains(c.bases, r.Name)) && r.Unsteady()
	})
}

// rate is a row's packets per second, 0 when it was not measured.
func rate(t *rig.RateTable, name string) float64 {
	for _, r := range t.Rows {
		if r.Name == name && r.Measured() {
			return r.Arrived().Median()
		}
	}
	return 0
}
