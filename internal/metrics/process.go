package metrics

import (
	"context"
	"sync/atomic"
)

var (
	build = NewGauge("floodwall_build_info", "1, with the version of the daemon.", "version")
	bans  = NewCounter("floodwall_bans_total",
		"Prefixes that were banned since this daemon started: by limits (automatic), and by hand through its API (manual).", "origin")
)

// Bans count what a daemon has banned.
type Bans struct{ Automatic, Manual atomic.Uint64 }

// Process are the figures of a daemon of some version.
func Process(version string, counted *Bans) Part {
	return Part{Families: []*Family{build, bans}, Read: func(_ context.Context, add Add) error {
		add(build, 1, version)
		add(bans, float64(counted.Automatic.Load()), "automatic")
		add(bans, float64(counted.Manual.Load()), "manual")
		return nil
	}}
}
