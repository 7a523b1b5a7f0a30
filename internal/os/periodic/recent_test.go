// SPDX-License-Identifier: Apache-2.0

package periodic

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnswer calls Of repeatedly from several goroutines. The question must be asked once for each age of an answer. After an error it must be asked
// each time.
func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Answer[int]
		var asked atomic.Int64
		var failed error
		ask := func() (int, error) { return int(asked.Add(1)), failed }
		var running sync.WaitGroup
		for range 10 {
			running.Go(func() {
				for range 5 {
					if n, err := a.Of(ask); err != nil || int64(n) != asked.Load() {
						t.Errorf("answer %d of %d, %v", n, asked.Load(), err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		running.Wait()
		if asked.Load() != 5 {
			t.Errorf("asked %d times in 5 s", asked.Load())
		}
		failed = errors.New("no")
		for want := int64(6); want < 8; want++ {
			if _, err := a.Of(ask); err != failed || asked.Load() != want {
				t.Errorf("%v after %d questions", err, asked.Load())
			}
		}
		if n, _ := (*Answer[int])(nil).Of(ask); n != 8 {
			t.Errorf("without a memory: answer %d", n)
		}
	})
}
