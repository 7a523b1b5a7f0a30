package lab

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Times is how long things of one kind took, in nanoseconds with three digits, up to a minute. The zero value has none, and
// none can be added to it one by one.
type Times struct{ counts *hdrhistogram.Histogram }

func newTimes() Times { return Times{hdrhistogram.New(1, int64(time.Minute), 3)} }

// add counts a time.
func (t Times) add(d time.Duration) {
	// Out of range is impossible after this.
	_ = t.counts.RecordValue(min(max(int64(d), 1), t.counts.HighestTrackableValue()))
}

// Add adds the times of another one.
func (t *Times) Add(other Times) {
	if other.counts == nil {
		return
	}
	if t.counts == nil {
		*t = newTimes()
	}
	t.counts.Merge(other.counts)
}

// Count is how many there are.
func (t Times) Count() int {
	if t.counts == nil {
		return 0
	}
	return int(t.counts.TotalCount())
}

// Quantile is the time within which a share of them lies, in percent; 0 when there are none.
func (t Times) Quantile(percent float64) time.Duration {
	if t.counts == nil {
		return 0
	}
	return time.Duration(t.counts.ValueAtQuantile(percent))
}

// Latency is the usual figures of the times.
func (t Times) Latency() Latency {
	if t.counts == nil {
		return Latency{}
	}
	return Latency{
		Mean: time.Duration(t.counts.Mean()), P50: t.Quantile(50), P90: t.Quantile(90), P99: t.Quantile(99),
		P999: t.Quantile(99.9), Max: t.Quantile(100),
	}
}
