// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// TestStreamAway sends two thousand bans to a hub whose stream does not exist. The hub must soon answer Later, so no write may wait for another
// write.
func TestStreamAway(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	if err := h.js.DeleteStream(t.Context(), banStream); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var said wire.Offer
	for i := range 2000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 32)
		said = append(said, wire.Said{Prefix: p, Statement: wire.Statement{Origin: wire.Controller, Seq: wire.NextSequence(now, 0), Until: now.Add(time.Hour).UnixMilli()}})
	}
	done := make(chan []wire.Outcome, 1)
	h.enqueue(offer{origin: wire.Controller, said: said, done: done})
	select {
	case outcomes := <-done:
		if slices.ContainsFunc(outcomes, func(o wire.Outcome) bool { return o != wire.Later }) {
			t.Errorf("without a stream the outcomes are %v", outcomes[:10])
		}
	case <-time.After(time.Minute):
		t.Error("no answer in a minute")
	}
}
