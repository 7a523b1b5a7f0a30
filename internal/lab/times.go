package lab

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Times is a histogram of times, in nanoseconds with three digits, up to a minute. The zero value is empty, and its add must not be called.
type Times struct{ counts *hdrhistogram.Histogram }

func newTimes() Times { return Times{hdrhistogram.New(1, int64(time.Minute), 3)} }

// add counts a time.
func (t Times) add(d time.Duration) {
	// The value is in range, so this cannot fail.
	_ = t.counts.RecordValue(min(max(int64(d), 1), t.counts.HighestTrackableValue()))
}

// Add adds the times of another histogram.
func (t *Times) Add(other Times) {
	if other.counts == nil {
		return
	}
	if t.counts == nil {
		*t = newTimes()
	}
	t.counts.Merge(other.counts)
}

// Count returns the number of times.
func (t Times) Count() int {
	if t.counts == nil {
		return 0
	}
	return int(t.counts.TotalCount())
}

// Quantile returns the time that is not shorter than a share of the times. The share is in percent. The result is 0 if there are no times.
func (t Times) Quantile(percent float64) time.Duration {
	if t.counts == nil {
		return 0
	}
	return time.Duration(t.counts.ValueAtQuantile(percent))
}

// Latency returns the usual figures of the times.
func (t Times) Latency() Latency {
	if t.counts == nil {
		return Latency{}
	}
	return Latency{
		Mean: time.Duration(t.counts.Mean()), P50: t.Quantile(50), P90: t.Quantile(90), P99: t.Quantile(99),
		P999: t.Quantile(99.9), Max: t.Quantile(100),
	}
}
