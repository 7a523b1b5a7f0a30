// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// view is the last view of the fleet.
type view struct {
	*wire.View
	at time.Time // when the view arrived
}

// Report sends a summary of this node to the hubs. If no hub is connected, the summary is lost; the next one follows soon.
func (a *Agent) Report(s *wire.Summary) {
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if conn != nil && conn.IsConnected() && s.Check() == nil {
		_ = conn.Publish(wire.SummarySubject(a.file.Name), wire.EncodeSummary(s))
	}
}

// View returns the last view of the fleet. It is nil when no hub has sent a view for 30 seconds.
func (a *Agent) View() *wire.View {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sees.View == nil || time.Since(a.sees.at) >= wire.Stale {
		return nil
	}
	return a.sees.View
}

// viewed processes a view from a hub.
func (a *Agent) viewed(m *nats.Msg) {
	v, err := wire.ParseView(m.Data)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sees = view{v, time.Now()}
}
