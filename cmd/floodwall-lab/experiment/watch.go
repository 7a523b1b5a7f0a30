// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"math"
	"time"
)

// watchPart is the length of the parts of the time. watchRate looks for the part with the least rate.
const watchPart = 50 * time.Millisecond

// watchRate watches a counter until stop is called. stop returns the rate per second over the whole time, and in its weakest part.
func watchRate(read func() (uint64, error)) (stop func() (mean, least float64, err error)) {
	weakest, failed := math.Inf(1), error(nil)
	var count uint64 // at the time last
	var last time.Time
	look := func() (rate float64) {
		n, err := read()
		if err != nil {
			failed = err
			return math.Inf(1)
		}
		now := time.Now()
		rate = float64(n-count) / now.Sub(last).Seconds()
		count, last = n, now
		return rate
	}
	look()
	first, began := count, last
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(watchPart)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				weakest = min(weakest, look())
			case <-ended:
				return
			}
		}
	}()
	return func() (mean, least float64, err error) {
		close(ended)
		<-done
		look()
		mean = float64(count-first) / last.Sub(began).Seconds()
		if math.IsInf(weakest, 1) {
			return mean, mean, failed
		}
		return mean, weakest, failed
	}
}
