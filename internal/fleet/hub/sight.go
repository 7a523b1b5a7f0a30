package hub

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// How often one node may say what it sees, in summaries a second, and how many seconds' worth at once.
const (
	summaryRate  = 0.5
	summaryBurst = 10
)

// summaries is what this hub has heard of all nodes, and when any hub last published the view of them.
type summaries struct {
	wire.Board
	shown atomic.Pointer[time.Time] // nil: never
}

func (r *rates) summary(node string, now time.Time) bool {
	return r.take(&r.sights, node, wire.Allowance{Rate: summaryRate, Burst: summaryBurst}, now, 1)
}

// summarized takes what a node sees. Every hub hears every node. The subject says which node it is, and nobody else may publish there.
func (h *Hub) summarized(m *nats.Msg) {
	node, err := wire.NodeOf(m.Subject)
	if err != nil || !h.speaks(node) || !h.rates.summary(node, time.Now()) {
		return
	}
	if s, err := wire.ParseSummary(m.Data); err == nil {
		h.sights.Put(node, s, time.Now())
	}
}

// sees is what the fleet sees now, as a message.
func (h *Hub) sees(most wire.Most) []byte {
	v := h.sights.View(time.Now(), most)
	v.Hub = h.config.Name
	return wire.EncodeView(v)
}

// seen answers a command that asks for the view.
func (h *Hub) seen(m *nats.Msg) { _ = m.Respond(h.sees(wire.ForCommands)) } // the command asks again

// shown notes that a hub has published the view.
func (h *Hub) shown(*nats.Msg) {
	now := time.Now()
	h.sights.shown.Store(&now)
}

// show publishes the view until ctx ends, unless another hub has done so: one of them suffices. Without summaries there is none.
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
		_ = h.conn.Publish(wire.Views, h.sees(wire.ForNodes)) // the connection is down, and the next one tells more
	}
}
