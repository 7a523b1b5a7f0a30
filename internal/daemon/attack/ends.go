// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"time"

	"github.com/floodwall/floodwall/policy"
)

// beginning returns the time at which a load rose above its bound, and the number of latest seconds in which it was above. Samples give the time to a
// tenth of a second. Without samples, the counters give the time to a second.
func (w *Watcher) beginning(l *load) (started time.Time, seconds int) {
	if l.began.IsZero() {
		seconds = min(l.rate.above, len(w.latest))
		return w.at.Add(-max(time.Duration(seconds)*time.Second, riseTenths*tenth)).UTC(), seconds
	}
	for seconds < len(w.latest) && w.read.Add(-time.Duration(seconds)*time.Second).After(l.began) {
		seconds++
	}
	return l.began.UTC(), seconds
}

// stop ends the current attack, because the running policy has no detection.
func (w *Watcher) stop() {
	if w.settings.On {
		w.end()
	}
	w.learns.Store(nil)
	w.settings, w.before, w.recent, w.latest = policy.Detect{}, nil, nil, nil
	w.traffic = newTraffic(0, 0)
}

// end writes the report and the learned state when the daemon ends.
func (w *Watcher) end() {
	if !w.settings.On {
		return
	}
	if w.now != nil {
		w.keep()
		w.none()
	}
	w.keepUsual()
}
