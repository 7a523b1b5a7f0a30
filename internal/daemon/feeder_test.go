// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/floodwall/floodwall/internal/engine/lists"
)

// TestExchangeFails makes exchanges of a list fail. A failed exchange must be tried again with growing pauses, and reported once. After a success,
// the next failure must be reported again.
func TestExchangeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var tried []time.Duration
		said := 0
		fails := func() bool { return time.Since(begin) < time.Hour || time.Since(begin) > 70*time.Minute }
		f := &feeder{watcher: &watcher{report: func(Event) { said++ }}, sync: func(context.Context, bool) ([]lists.Exchanged, error) {
			tried = append(tried, time.Since(begin))
			if fails() {
				return nil, errors.New("no memory")
			}
			return nil, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		f.exchanges(ctx)
		within := func(from, to time.Duration) (n int) {
			for _, at := range tried {
				if at >= from && at < to {
					n++
				}
			}
			return n
		}
		if a, b := within(0, time.Minute), within(time.Minute, time.Hour); a < 3 || a > 6 || b < 10 || b > 16 {
			t.Errorf("tried %d times in the first minute, and %d in the rest of the hour", a, b)
		}
		if n := within(66*time.Minute, 67*time.Minute); n != 30 {
			t.Errorf("looked %d times in a minute in which all was well", n)
		}
		if n := within(70*time.Minute, 71*time.Minute); n < 3 || n > 7 {
			t.Errorf("tried %d times in the first minute of the second failure", n)
		}
		if said != 2 {
			t.Errorf("it was said %d times", said)
		}
	})
}
