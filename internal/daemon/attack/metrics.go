// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	"github.com/floodwall/floodwall/internal/daemon/metrics"
)

var active = metrics.NewGauge("floodwall_attack_active", "How many attacks go on, as `detect` of the policy sees them.")

var (
	learnedSamples = metrics.NewGauge("floodwall_detect_learned_samples", "Legitimate samples that `detect` holds rules against.")
	neededSamples  = metrics.NewGauge("floodwall_detect_needed_samples", "Legitimate samples without which `auto` of `detect` adds no rule; 0: it is not asked to.")
	autoReady      = metrics.NewGauge("floodwall_detect_auto_ready", "1 when `auto` of `detect` may add rules; `floodwall status` says what is lacking.")
)

// Metrics returns the metrics for Prometheus.
func (w *Watcher) Metrics() metrics.Part {
	return metrics.Part{Families: []*metrics.Family{active, learnedSamples, neededSamples, autoReady}, Read: func(_ context.Context, add metrics.Add) error {
		add(active, float64(w.Active()))
		if l := w.Learning(); l != nil {
			ready := 0.0
			if l.Needed > 0 && l.Lacks == "" {
				ready = 1
			}
			add(learnedSamples, float64(l.Samples))
			add(neededSamples, float64(l.Needed))
			add(autoReady, ready)
		}
		return nil
	}}
}
