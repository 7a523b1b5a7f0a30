// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"github.com/floodwall/floodwall/internal/engine/lists"
)

var (
	feedSuccess = NewGauge("floodwall_feed_last_success_timestamp_seconds",
		"When the list of a set was last known to be the newest, in seconds since 1970; 0 when it never was.", "set")
	feedEntries = NewGauge("floodwall_feed_entries", "Prefixes of a list that are in force.", "set")
)

// Lists returns the metrics of sets whose lists are fetched. The function read returns the status of the sets.
func Lists(read func(context.Context) ([]lists.Status, error)) Part {
	return Part{Families: []*Family{feedSuccess, feedEntries}, Read: func(ctx context.Context, add Add) error {
		all, err := read(ctx)
		for _, s := range all {
			if s.Every == 0 { // the content is from a database
				continue
			}
			at := 0.0
			if s.Checked != nil {
				at = float64(s.Checked.Unix())
			}
			add(feedSuccess, at, s.Set)
			add(feedEntries, float64(s.Entries), s.Set)
		}
		return err
	}}
}
