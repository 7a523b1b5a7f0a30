package attack

import (
	"context"

	"github.com/floodwall/floodwall/internal/daemon/metrics"
)

var active = metrics.NewGauge("floodwall_attack_active", "How many attacks go on, as `detect` of the policy sees them.")

// Metrics are the figures for Prometheus.
func (w *Watcher) Metrics() metrics.Part {
	return metrics.Part{Families: []*metrics.Family{active}, Read: func(_ context.Context, add metrics.Add) error {
		add(active, float64(w.Active()))
		return nil
	}}
}
