// SPDX-License-Identifier: Apache-2.0

// Package metrics serves metrics to Prometheus. In: functions that read the kernel's counters at each scrape. Out: a complete scrape, or an error when
// a counter could not be read, because missing values would look like a drop to zero.
//
// Read metrics.go first. status.go has the metrics of the running policy. Other packages of the daemon define their own Part, such as daemon/attack:
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
// A Part that needs the parts of the API is registered in daemon/api (New). Other Parts are registered in cmd/floodwall/daemon.go (Figures).
// docs/api.md lists the metrics.
//
// Values have base units: packets, bytes, seconds. A label never contains an address, nor any value that a sender of packets can choose.
package metrics
