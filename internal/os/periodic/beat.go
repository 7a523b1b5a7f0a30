// SPDX-License-Identifier: Apache-2.0

// This file aligns the times of periodic tasks, so that an idle daemon wakes up once for all of them.

package periodic

import "time"

// start is the time from which this process counts seconds. It differs between processes and hosts, so they wake up at different times.
var start = time.Now()

// Left returns a duration to wait in place of d, so that the wait ends at a whole second of this process. The result is at least half of d and at
// most d. If there is no whole second in that range, the wait ends at the next whole second. If d is less than a second, Left returns d.
func Left(d time.Duration) time.Duration { return left(time.Since(start), d) }

func left(now, d time.Duration) time.Duration {
	if d < time.Second {
		return d
	}
	wait := (now + d).Truncate(time.Second) - now
	if wait < d/2 {
		wait += time.Second
	}
	return wait
}
