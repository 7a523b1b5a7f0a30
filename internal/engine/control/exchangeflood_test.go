package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	feedlists "github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// TestExchangeInFlood exchanges a list during a flood, when the rate is already below the rate at which a flood starts. The exchange must not end the
// flood state.
func TestExchangeInFlood(t *testing.T) {
	onEnds(t, "xdp", func(e *ends) {
		l := newLists(e)
		l.body.Store("9.9.9.1\n")
		_, err := l.try(fmt.Sprintf(`sets: {drop: {url: %q, shrink: 0%%}}
services: [{name: game, port: udp/2001, udp: {start: {rate: 1/s, burst: 2}, stop: 30/min, limit: off, total: {rate: 1/h, burst: 1}}}]
rules: [{name: listed, from: $drop, then: drop}]
`, l.url), control.ApplyOptions{Target: plan.TargetXDP, Fetch: &feed.Fetcher{}})
		if err != nil {
			l.Fatal(err)
		}
		for i, want := range []bool{true, true, true, false} {
			if got := l.through("9.9.9.5", 2001); got != want {
				l.Errorf("packet %d gets through: %t", i, got)
			}
		}
		time.Sleep(2500 * time.Millisecond)
		l.serve("9.9.9.2\n")
		l.sync(feedlists.Exchanged{Set: "drop", Entries: 1, Before: 1})
		if l.through("9.9.9.5", 2001) {
			l.Error("the flood is forgotten")
		}
	})
}
