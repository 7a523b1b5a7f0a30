package node

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// view is what the fleet saw last.
type view struct {
	*wire.View
	at time.Time // when it came
}

// Report tells the hubs what this node sees. Without a hub it is lost: the next one tells more.
func (a *Agent) Report(s *wire.Summary) {
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if conn != nil && conn.IsConnected() && s.Check() == nil {
		_ = conn.Publish(wire.SummarySubject(a.file.Name), wire.EncodeSummary(s))
	}
}

// View is what the fleet sees. It is nil when no hub has said so for 30 seconds.
func (a *Agent) View() *wire.View {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sees.View == nil || time.Since(a.sees.at) >= wire.Stale {
		return nil
	}
	return a.sees.View
}

// viewed takes the view of a hub.
func (a *Agent) viewed(m *nats.Msg) {
	v, err := wire.ParseView(m.Data)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sees = view{v, time.Now()}
}
