// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OnOneCPU keeps the calling goroutine on the first CPU that it may use, until the caller calls restore. Packets that the goroutine sends in this
// time arrive in the order in which they were sent. Otherwise they might not, because each CPU has a receive queue of its own.
func OnOneCPU(t testing.TB) (restore func()) {
	t.Helper()
	back, err := StayOnOneCPU()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := back(); err != nil {
			t.Error(err)
		}
	}
}

// StayOnOneCPU is like OnOneCPU, but returns errors. It can be called outside of the goroutine of a test.
func StayOnOneCPU() (restore func() error, err error) {
	runtime.LockOSThread() // in case of an error it stays locked, and the thread ends with the goroutine
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, err
	}
	return func() error {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			return err
		}
		runtime.UnlockOSThread()
		return nil
	}, nil
}
