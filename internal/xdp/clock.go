package xdp

import (
	"time"

	"golang.org/x/sys/unix"
)

// SecondOf is a time, in nanoseconds of Unix time, as a second of CLOCK_MONOTONIC, rounded up: the clock that programs read. A time that has
// passed is 1, as 0 stands for none.
func SecondOf(unixNano int64) uint32 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // does not fail with this clock
	ahead := unixNano - time.Now().UnixNano()
	return uint32(max(1, (now.Nano()+ahead+int64(time.Second)-1)/int64(time.Second)))
}
