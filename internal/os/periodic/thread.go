// SPDX-License-Identifier: Apache-2.0

package periodic

import (
	"time"

	"golang.org/x/sys/unix"
)

// SleepThread blocks the calling thread for a time, by the kernel's clock. A timer of the Go runtime ends late if the thread that handles timers gets no
// CPU, as in a flood.
func SleepThread(wait time.Duration) {
	left := unix.NsecToTimespec(wait.Nanoseconds())
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &left, &left) == unix.EINTR {
	}
}
