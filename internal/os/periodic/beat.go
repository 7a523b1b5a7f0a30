// This file has tasks that look again and again do so at the same times, so that a daemon at rest wakes once for all of them.

package periodic

import "time"

// start is when the beats of this process are counted from: those of other processes, and of other hosts, are at other times.
var start = time.Now()

// Left is how long to wait instead of d, so that the wait ends at a whole second of this process. It is d at most and half of d at least. When
// there is no such time between, it is the next one. A wait of less than a second stays as it is.
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
