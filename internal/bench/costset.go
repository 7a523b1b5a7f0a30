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
			script, remove, err := tempFile("ipset", l.ipsetScript)
			if err != nil {
				return err
			}
			defer remove()
			if _, _, err := runTool(ctx, at.server, nil, "ipset", "restore", "-file", script); err != nil {
				return err
			}
			return restoring("*raw\n-A PREROUTING -m set --match-set listed src -j DROP\nCOMMIT\n")(ctx, at)
		},
		policy: func() (string, func(), error) {
			file, remove, err := tempFile("list.txt", l.write)
			return costPolicy + "sets: {listed: {file: " + strconv.Quote(file) + "}}\n" +
				"rules: [{name: listed, from: $listed, then: drop}]\n", remove, err
		},
	}
}

func things(n int, one, more string) string { return countText(n) + " " + choice(n == 1, one, more) }
