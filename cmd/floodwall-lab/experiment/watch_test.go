// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestWatch watches a counter that grows only in the first part of the time.
func TestWatch(t *testing.T) {
	var count atomic.Uint64
	stop := watchRate(func() (uint64, error) { return count.Load(), nil })
	begun := time.Now()
	count.Add(1_000_000)
	time.Sleep(4 * watchPart)
	mean, least, err := stop()
	highest := 1e6 / (4 * watchPart).Seconds()
	lowest := 1e6 / (time.Since(begun) + watchPart).Seconds()
	if err != nil || mean < lowest || mean > highest || least != 0 {
		t.Errorf("%g per second, %g at least, %v; want %g to %g, 0 at least", mean, least, err, lowest, highest)
	}
}

func TestWatchFails(t *testing.T) {
	want := errors.New("no counter")
	stop := watchRate(func() (uint64, error) { return 0, want })
	if _, _, err := stop(); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
