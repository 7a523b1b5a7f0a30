// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/floodwall/floodwall/internal/engine/ban"
)

var (
	build = NewGauge("floodwall_build_info", "1, with the version of the daemon.", "version")
	bans  = NewCounter("floodwall_bans_total",
		"Prefixes that were banned, by who asked: limits (automatic), persons (manual), or a program. Bans that end later than before do not count again.", "origin")
)

// Process returns the metrics of the daemon with this version. counted returns how many prefixes each origin has banned.
func Process(version string, counted func() map[string]uint64) Part {
	return Part{Families: []*Family{build, bans}, Read: func(_ context.Context, add Add) error {
		add(build, 1, version)
		sums := counted()
		for _, origin := range ban.Origins {
			add(bans, float64(sums[string(origin)]), string(origin))
		}
		return nil
	}}
}
