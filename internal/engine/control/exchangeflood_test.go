// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	feedlists "github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// TestExchangeInFlood exchanges a list during a flood, when the rate is already below the rate at which a flood starts. The exchange must not end the
// flood state.
func TestExchangeInFlood(t *testing.T) {
	onEnds(t, "xdp", func(e *ends) {
		l := newLists(e)
		text := fmt.Sprintf(`sets: {drop: {url: %q, shrink: 0%%}}
services: [{name: game, port: udp/2001, udp: {start: {rate: 1/s, burst: 2}, stop: 30/min, limit: off, total: {rate: 1/h, burst: 1}}}]
rules: [{name: listed, from: $drop, then: drop}]
`, l.url)
		for round := 0; ; round++ {
			l.body.Store("9.9.9.1\n")
			if _, err := l.try(text, control.ApplyOptions{Target: plan.TargetXDP, Fetch: &feed.Fetcher{}}); err != nil {
				l.Fatal(err)
			}
			began := time.Now()
			var through []bool
			for range 4 {
				through = append(through, l.through("9.9.9.5", 2001))
			}
			took := time.Since(began)
			time.Sleep(2500 * time.Millisecond)
			l.serve(fmt.Sprintf("9.9.8.%d\n", round))
			l.sync(feedlists.Exchanged{Set: "drop", Entries: 1, Before: 1})
			forgotten := l.through("9.9.9.5", 2001)
			// On a busy machine the limit may pass a packet more meanwhile, or the flood may have ended.
			if (took >= time.Second || time.Since(began) > ir.FloodTime) && round < 10 {
				l.clear()
				continue
			}
			if !slices.Equal(through, []bool{true, true, true, false}) {
				l.Errorf("the packets that begin the flood get through: %t", through)
			}
			if forgotten {
				l.Error("the flood is forgotten")
			}
			break
		}
	})
}
