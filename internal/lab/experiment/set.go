package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// setCase is a drop by a set of n addresses, of which one is the source.
func setCase(n int) packetcostTestCase {
	l := rig.RandomHosts(n - 1)
	l.Prefixes = append(l.Prefixes, netip.PrefixFrom(flowSource, 32))
	return packetcostTestCase{
		name: fmt.Sprintf("set/n=%d", n), label: fmt.Sprintf("drop, set of %s", report.Things(n, "address", "addresses")),
		article: &rig.ArticleRow{Kpps: 255, Cost: "10%"},
		install: func(ctx context.Context, at *rig.Site) error {
			if _, err := rig.RestoreIpset(ctx, at, l); err != nil {
				return err
			}
			return rig.RestoringRaw("-A PREROUTING "+rig.MatchListed+" -j DROP\n")(ctx, at)
		},
		policy: func() (string, func(), error) {
			file, remove, err := rig.TempFile("list.txt", l.Write)
			return passPolicy + "sets: {listed: {file: " + strconv.Quote(file) + "}}\n" +
				"rules: [{name: listed, from: $listed, then: drop}]\n", remove, err
		},
	}
}
