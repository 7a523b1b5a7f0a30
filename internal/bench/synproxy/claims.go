package synproxy

import (
	"math"

	"github.com/floodwall/floodwall/internal/bench/report"
)

// synClaim is something that the talk says: how many times a case's rate with a flood is another's, and between which
// bounds that holds here.
type synClaim struct {
	text        string
	talk        float64
	of, by      synFigure
	least, most float64
	rule        string
}

// synFigure is the most that a case does with a flood.
type synFigure struct {
	name  string
	flood *synFlood
}

// synClaims are the talk's. Its XDP program is a sample of the kernel, which no package has.
var synClaims = []synClaim{
	{
		"with XDP, 7.3 times as many SYNs are answered as by SYNPROXY", 2.96 / 0.406,
		synFigure{"floodwall/host", SynOnly}, synFigure{synproxyAt, SynOnly}, 2.96 / 0.406, math.Inf(1),
		"Floodwall, in place of the talk's XDP program, answers at least so many times as many",
	},
	{
		"with XDP, 6.2 times as many ACKs are dropped as by SYNPROXY", 5.6 / 0.9,
		synFigure{"floodwall/host", AckOnly}, synFigure{synproxyAt, AckOnly}, 5.6 / 0.9, math.Inf(1),
		"Floodwall, in place of the talk's XDP program, drops at least so many times as many",
	},
	{
		"SYNPROXY is far from the limit", 0.406 / 10.8,
		synFigure{synproxyAt, SynOnly}, synFigure{synTX, SynOnly}, 0, 0.1,
		"it answers at most a tenth of the SYNs that an empty XDP_TX returns",
	},
	{
		"SYNPROXY drops ACKs faster than it answers SYNs", 0.9 / 0.406,
		synFigure{synproxyAt, AckOnly}, synFigure{synproxyAt, SynOnly}, 1.3, 4,
		"1.3 to 4 times as many ACKs a second",
	},
	{
		"dropping can be 2.3 times as fast as sending back", 24.5 / 10.8,
		synFigure{synDrop, AckOnly}, synFigure{synTX, SynOnly}, 1.3, 4,
		"an empty XDP_DROP takes 1.3 to 4 times what an empty XDP_TX does",
	},
}

// claims judges what the talk says by the cases that were measured.
func (b *synBuilder) claims() (claims []report.Claim) {
	for _, c := range synClaims {
		judged := report.OpenClaim(c.text, report.TimesText(c.talk), c.rule)
		of, by := b.curve(c.of), b.curve(c.by)
		if one, other := of.most.Median(), by.most.Median(); one > 0 && other > 0 {
			times := one / other
			judged = judged.Found(report.TimesText(times), times >= c.least && times <= c.most, of.unsteady() || by.unsteady())
		}
		claims = append(claims, judged)
	}
	return claims
}

func (b *synBuilder) curve(f synFigure) *synCurve { return b.find(f.name).floods[f.flood] }
