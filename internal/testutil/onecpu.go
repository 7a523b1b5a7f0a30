package testutil

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OnOneCPU keeps the calling goroutine on the first CPU that it may use until the function that it returns is called. Packets that it
// sends meanwhile come in the order in which they were sent: each CPU has a queue of its own for what waits to be received.
func OnOneCPU(t testing.TB) (restore func()) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err) // the thread stays locked, and ends with the goroutine
			return
		}
		runtime.UnlockOSThread()
	}
}
