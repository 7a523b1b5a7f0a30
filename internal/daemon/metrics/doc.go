// Package metrics hands out figures to Prometheus. In: functions that read what the kernel counted, when it is asked. Out: one
// scrape, or an error when anything could not be read: half a scrape would look like a drop to zero.
//
// Read metrics.go first. status.go has the figures of what runs. Other parts of the daemon add a Part of their own:
//
//	var age = metrics.NewGauge("floodwall_feed_last_success_timestamp_seconds", "when the list was fetched last", "set")
//
//	func (f *Feeds) Metrics() metrics.Part {
//		return metrics.Part{Families: []*metrics.Family{age}, Read: func(ctx context.Context, add metrics.Add) error {
//			for _, l := range f.lists() {
//				add(age, float64(l.Fetched.Unix()), l.Set)
//			}
//			return nil
//		}}
//	}
//
// Units are base units: packets, bytes, seconds. No label is an address, nor anything that who sends packets can choose.
package metrics
