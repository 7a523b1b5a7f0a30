// SPDX-License-Identifier: Apache-2.0

package periodic

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLeft checks the waits from different times on.
func TestLeft(t *testing.T) {
	for _, c := range []struct{ now, d, want time.Duration }{
		{0, time.Second, time.Second},
		{10 * time.Millisecond, time.Second, 990 * time.Millisecond},
		{500 * time.Millisecond, time.Second, 500 * time.Millisecond},
		{600 * time.Millisecond, time.Second, 1400 * time.Millisecond},
		{990 * time.Millisecond, time.Second, 1010 * time.Millisecond},
		{300 * time.Millisecond, 2500 * time.Millisecond, 1700 * time.Millisecond},
		{300 * time.Millisecond, 10 * time.Second, 9700 * time.Millisecond},
		{1234 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond},
		{1234 * time.Millisecond, 0, 0},
		{-300 * time.Millisecond, time.Second, 1300 * time.Millisecond}, // such a time is possible only in a test, with its own clock
	} {
		if got := left(c.now, c.d); got != c.want {
			t.Errorf("at %v, %v becomes %v, want %v", c.now, c.d, got, c.want)
		}
	}
}

// TestTogether starts tasks at different times, with different pauses and work of different duration. After a minute, the process must wake only once
// a second.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken, ends := map[time.Time]bool{}, time.Now().Add(2*time.Minute)
		wakes := make(chan time.Time)
		for i := range 20 {
			go func() {
				time.Sleep(time.Duration(i) * 37 * time.Millisecond)
				for time.Now().Before(ends) {
					time.Sleep(Left(time.Duration(1+i%5) * time.Second))
					wakes <- time.Now()
					time.Sleep(time.Duration(i) * time.Millisecond) // stands for the task's work
				}
				wakes <- time.Time{}
			}()
		}
		for running := 20; running > 0; {
			at := <-wakes
			if at.IsZero() {
				running--
			} else if left := ends.Sub(at); left > 0 && left < time.Minute {
				woken[at] = true
			}
		}
		if len(woken) > 60 {
			t.Errorf("woken at %d times in a minute", len(woken))
		}
	})
}
