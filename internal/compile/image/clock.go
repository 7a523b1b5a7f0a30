// SPDX-License-Identifier: Apache-2.0

package image

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time of CLOCK_MONOTONIC, which bpf_ktime_get_ns() and Go's monotonic times also use.
func Monotonic() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail with this clock
	return time.Duration(now.Nano())
}

// SecondOf converts a Unix time in nanoseconds to seconds of Monotonic, rounded up. For a time in the past it may return 1. It never returns 0,
// because 0 means that there is no time.
func SecondOf(unixNano int64) uint32 {
	var before, ahead time.Duration
	for range 10 { // if the process loses the CPU between the two clock reads, the result is wrong by the time it waits
		before = Monotonic()
		ahead = time.Duration(unixNano - time.Now().UnixNano())
		if Monotonic()-before < time.Millisecond {
			break
		}
	}
	return uint32(max(1, (before+ahead+time.Second-1)/time.Second))
}
