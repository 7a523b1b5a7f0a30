package image

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic is the time by CLOCK_MONOTONIC: that of bpf_ktime_get_ns(), which programs read, and of Go's monotonic times.
func Monotonic() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // does not fail with this clock
	return time.Duration(now.Nano())
}

// SecondOf is a time, in nanoseconds of Unix time, as a second of Monotonic, rounded up. A time that has
// passed is 1, as 0 stands for none.
func SecondOf(unixNano int64) uint32 {
	var before, ahead time.Duration
	for range 10 { // a process that waits for a CPU between two clocks would move the time by so much
		before = Monotonic()
		ahead = time.Duration(unixNano - time.Now().UnixNano())
		if Monotonic()-before < time.Millisecond {
			break
		}
	}
	return uint32(max(1, (before+ahead+time.Second-1)/time.Second))
}
