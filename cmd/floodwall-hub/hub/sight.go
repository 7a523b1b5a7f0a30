// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// The limits of a node's summaries: summaries a second, and seconds of that rate in a burst.
const (
	summaryRate  = 0.5
	summaryBurst = 10
)

// summaries contains the summaries of all nodes that this hub has received, and the time when any hub last published the view.
type summaries struct {
	wire.Board
	shown atomic.Pointer[time.Time] // when the view was last published; nil: never
}

func (r *rates) summary(node string, now time.Time) bool {
	return r.take(&r.sights, node, wire.Allowance{Rate: summaryRate, Burst: summaryBurst}, now, 1)
}

// summarized processes a summary. Every hub receives the summaries of all nodes. The subject names the node, and other nodes cannot publish on it.
func (h *Hub) summarized(m *nats.Msg) {
	node, err := wire.NodeOf(m.Subject)
	if err != nil || !h.speaks(node) || !h.rates.summary(node, time.Now()) {
		return
	}
	if s, err := wire.ParseSummary(m.Data); err == nil {
		h.sights.Put(node, s, time.Now())
	}
}

// sees returns the present view of the fleet as a message.
func (h *Hub) sees(most wire.Most) []byte {
	v := h.sights.View(time.Now(), most)
	v.Hub = h.config.Name
	return wire.EncodeView(v)
}

// seen answers a command that requests the view.
func (h *Hub) seen(m *nats.Msg) { _ = m.Respond(h.sees(wire.ForCommands)) } // after an error, the command sends its request again

// shown records that a hub has published the view.
func (h *Hub) shown(*nats.Msg) {
	now := time.Now()
	h.sights.shown.Store(&now)
}

// show publishes the view until ctx ends, unless another hub has just published it. Without summaries there is no view.
func (h *Hub) show(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if last := h.sights.shown.Load(); h.sights.Empty() || last != nil && time.Since(*last) < wire.Every-time.Second/2 {
			continue
		}
		h.shown(nil)
		_ = h.conn.Publish(wire.Views, h.sees(wire.ForNodes)) // an error means that the connection is down, and the next view follows soon
	}
}
