package experiment

import (
	"fmt"
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/lab/report"
)

// What must hold for claims of the article of 2023.
const (
	leastWait = 1.0  // seconds of a client for each answer while the table is full
	mostApart = 0.05 // by which the rate with notrack may differ from that without a firewall, as a share
)

// claims judges what the article says by the cases that were measured.
func (b *conntrackBuilder) claims() []report.Claim {
	none, full, bare := b.named("no-firewall"), b.named("nft/full"), b.named("nft/notrack")
	collapse := report.OpenClaim("with a full table, a tenth of the requests is answered", rateShare(91.55, 926),
		fmt.Sprintf("once the table is full, at most %.0f%% of the rate without a firewall is left", 100*mostCollapse))
	wait := report.OpenClaim("with a full table, an answer takes more than a second", "1.55 s",
		fmt.Sprintf("once the table is full, each client has an answer at most every %.0f s: %d clients by their rate", leastWait, connections))
	lost := report.OpenClaim("with a full table, requests time out", "2911 time-outs", "some time out, and none do without a firewall")
	same := report.OpenClaim("with notrack, it is the same with the firewall on and off", "598.53 req/s, both",
		fmt.Sprintf("the rates differ by at most %.0f%%, round by round", 100*mostApart))

	if base := none.figure(rateOf).Median(); base > 0 && len(full.fullRates()) > 0 {
		rates := full.fullRates()
		rate, unsteady := rates.Median(), none.unsteady() || rates.Unsteady()
		collapse = collapse.Within(rateShare(rate, base), full.fullRatio(none), 0, mostCollapse, unsteady)
		wait = wait.Within(report.Choice(rate > 0, fmt.Sprintf("%.2f s", connections/rate), "no answers"), rates, math.Inf(-1), connections/leastWait, unsteady)
	}
	if len(full.visits) > 0 && len(full.fullRates()) == 0 {
		collapse.Here, wait.Here = "the table did not become full", "the table did not become full"
	}
	if len(none.visits) > 0 && len(full.visits) > 0 {
		in, out := full.figure(timeouts), slices.Max(none.figure(timeouts))
		held := report.Choice(out == 0, len(in.Positive()), 0)
		lost = lost.Found(fmt.Sprintf("%.0f, without a firewall %.0f", in.Median(), out), held, len(in))
	}
	if ratios := bare.ratio(none); len(ratios) > 0 {
		same = same.Within(fmt.Sprintf("%.3f of no firewall", ratios.Median()), ratios, 1-mostApart, 1+mostApart, ratios.Unsteady())
	}
	return []report.Claim{collapse, wait, lost, same}
}

// named is the case of that name.
func (b *conntrackBuilder) named(name string) *conntrackTestCase {
	return b.cases[slices.IndexFunc(b.cases, func(c *conntrackTestCase) bool { return c.name == name })]
}

func rateShare(part, whole float64) string {
	return fmt.Sprintf("%.0f of %.0f req/s (%.2f)", part, whole, part/whole)
}
