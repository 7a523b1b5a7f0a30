package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
)

// setCase is a drop by a set of n addresses, of which one is the source.
func setCase(n int) costCase {
	l := randomHosts(n - 1)
	l.prefixes = append(l.prefixes, netip.PrefixFrom(costSource, 32))
	return costCase{
		name: fmt.Sprintf("set/n=%d", n), label: fmt.Sprintf("drop, set of %s", things(n, "address", "addresses")),
		article: &articleRow{255, "10%"},
		install: func(ctx context.Context, at *site) error {
			if _, err := restoreIpset(ctx, at, l); err != nil {
				return err
			}
			return raw("-A PREROUTING "+matchListed+" -j DROP\n")(ctx, at)
		},
		policy: func() (string, func(), error) {
			file, remove, err := tempFile("list.txt", l.write)
			return costPolicy + "sets: {listed: {file: " + strconv.Quote(file) + "}}\n" +
				"rules: [{name: listed, from: $listed, then: drop}]\n", remove, err
		},
	}
}
