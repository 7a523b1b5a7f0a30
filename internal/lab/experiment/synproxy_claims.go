package experiment

import (
	"math"

	"github.com/floodwall/floodwall/internal/lab/report"
)

// synproxyClaim is something that the talk says: how many times a case's rate with a flood is another's, and between which
// bounds that holds here.
type synproxyClaim struct {
	text        string
	talk        float64
	of, by      peak
	least, most float64
	rule        string
}

// peak is the most that a case does with a flood.
type peak struct {
	name  string
	flood *Flood
}

// talkClaims are the talk's. Its XDP program is a sample of the kernel, which no package has.
var talkClaims = []synproxyClaim{
	{
		"with XDP, 7.3 times as many SYNs are answered as by SYNPROXY", 2.96 / 0.406,
		peak{"floodwall/host", SYNs}, peak{synproxyAt, SYNs}, 2.96 / 0.406, math.Inf(1),
		"Floodwall, in place of the talk's XDP program, answers at least so many times as many",
	},
	{
		"with XDP, 6.2 times as many ACKs are dropped as by SYNPROXY", 5.6 / 0.9,
		peak{"floodwall/host", ACKs}, peak{synproxyAt, ACKs}, 5.6 / 0.9, math.Inf(1),
		"Floodwall, in place of the talk's XDP program, drops at least so many times as many",
	},
	{
		"SYNPROXY is far from the limit", 0.406 / 10.8,
		peak{synproxyAt, SYNs}, peak{limitTX, SYNs}, 0, 0.1,
		"it answers at most a tenth of the SYNs that an empty XDP_TX returns",
	},
	{
		"SYNPROXY drops ACKs faster than it answers SYNs", 0.9 / 0.406,
		peak{synproxyAt, ACKs}, peak{synproxyAt, SYNs}, 1.3, 4,
		"1.3 to 4 times as many ACKs a second",
	},
	{
		"dropping can be 2.3 times as fast as sending back", 24.5 / 10.8,
		peak{limitDrop, ACKs}, peak{limitTX, SYNs}, 1.3, 4,
		"an empty XDP_DROP takes 1.3 to 4 times what an empty XDP_TX does",
	},
}

// claims judges what the talk says by the cases that were measured.
func (b *synproxyBuilder) claims() (claims []report.Claim) {
	for _, c := range talkClaims {
		judged := report.OpenClaim(c.text, report.TimesText(c.talk), c.rule)
		of, by := b.curve(c.of), b.curve(c.by)
		if times := of.most.By(by.most).Positive(); len(times) > 0 {
			judged = judged.Within(report.WithInterval(times), times, c.least, c.most, of.unsteady() || by.unsteady())
		}
		claims = append(claims, judged)
	}
	return claims
}

// curve is what was measured of it: nothing where the row is not wanted.
func (b *synproxyBuilder) curve(f peak) *floodCurve {
	if c := b.find(f.name); c != nil && c.floods[f.flood] != nil {
		return c.floods[f.flood]
	}
	return &floodCurve{}
}
