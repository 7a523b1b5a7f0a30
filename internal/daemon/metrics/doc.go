// Package metrics hands out figures to Prometheus. In: functions that read what the kernel counted, when it is asked. Out: one
// scrape, or an error when anything could not be read: half a scrape would look like a drop to zero.
//
// Read metrics.go first. status.go has the figures of what runs. Another part of the daemon has a Part of its own, as daemon/attack has:
//
//	var active = metrics.NewGauge("floodwall_attack_active", "How many attacks go on.")
//
//	func (w *Watcher) Metrics() metrics.Part {
//		return metrics.Part{Families: []*metrics.Family{active}, Read: func(_ context.Context, add metrics.Add) error {
//			add(active, float64(w.Active()))
//			return nil
//		}}
//	}
//
// A Part is registered in daemon/api (New), when it needs what the API has, or else in cmd/floodwall/daemon.go (Figures). docs/api.md lists the
// metrics.
//
// Units are base units: packets, bytes, seconds. No label is an address, nor anything that who sends packets can choose.
package metrics
