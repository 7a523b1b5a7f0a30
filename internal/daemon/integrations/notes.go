// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// notes counts the lines since the last report that led to no ban.
type notes struct {
	invalid int            // lines that are not events
	ignored map[string]int // alerts, by the reason

	quiet time.Time            // lines are not reported before this time
	said  map[string]time.Time // when a reason was last reported
}

// How often the same reason is reported, and the largest number of kept reasons, because some reasons contain addresses.
const (
	lineRest   = time.Minute
	reasonRest = time.Hour
	mostSaid   = 100
)

func newNotes() notes { return notes{ignored: map[string]int{}, said: map[string]time.Time{}} }

// tell reports the notes that are due.
func (n *notes) tell(now time.Time, report func(text string, err error)) {
	if n.said == nil {
		return
	}
	if n.invalid > 0 && !now.Before(n.quiet) {
		report("", fmt.Errorf("suricata: %d lines are no events in JSON, or have more than %d MB: they are skipped", n.invalid, mostLine>>20))
		n.invalid, n.quiet = 0, now.Add(lineRest)
	}
	for _, why := range slices.Sorted(maps.Keys(n.ignored)) {
		if at, ok := n.said[why]; (!ok || now.Sub(at) >= reasonRest) && (ok || len(n.said) < mostSaid) {
			report(fmt.Sprintf("suricata: ignored %d of the alerts: %s", n.ignored[why], why), nil)
			n.said[why] = now
			delete(n.ignored, why)
		}
	}
	if len(n.ignored) > mostSaid {
		clear(n.ignored)
	}
	maps.DeleteFunc(n.said, func(_ string, at time.Time) bool { return now.Sub(at) >= 2*reasonRest })
}
