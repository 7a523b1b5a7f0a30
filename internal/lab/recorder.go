package lab

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// recorder counts requests and their times, altogether and since the last interval. Times are kept in microseconds
// with three digits.
type recorder struct {
	mu       sync.Mutex
	all, now histogram
	errors   map[string]uint64
}

// histogram is the times of requests that were answered, and the number of the others.
type histogram struct {
	times  *hdrhistogram.Histogram
	failed uint64
}

func newRecorder(longest time.Duration) *recorder {
	// An answer may come in just before the deadline and be recorded after it.
	highest := max(2*longest, time.Second).Microseconds()
	return &recorder{
		all:    histogram{times: hdrhistogram.New(1, highest, 3)},
		now:    histogram{times: hdrhistogram.New(1, highest, 3)},
		errors: make(map[string]uint64),
	}
}

// add records a request that took that long, or failed.
func (r *recorder) add(took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.errors[cause(err)]++
	}
	for _, h := range []*histogram{&r.all, &r.now} {
		if err != nil {
			h.failed++
			continue
		}
		// Out of range is impossible after the line before.
		_ = h.times.RecordValue(min(max(took.Microseconds(), 1), h.times.HighestTrackableValue()))
	}
}

// interval returns what was recorded since the last call.
func (r *recorder) interval(at time.Duration) Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Sample{
		Time: at, OK: uint64(r.now.times.TotalCount()), Failed: r.now.failed,
		P50: r.now.quantile(50), P99: r.now.quantile(99),
	}
	r.now.times.Reset()
	r.now.failed = 0
	return s
}

func (r *recorder) summary(total time.Duration) LoadSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	ok := uint64(r.all.times.TotalCount())
	return LoadSummary{
		Time: total, OK: ok, Failed: r.all.failed, Errors: maps.Clone(r.errors),
		Rate: float64(ok) / total.Seconds(),
		Mean: time.Duration(r.all.times.Mean() * float64(time.Microsecond)),
		P50:  r.all.quantile(50), P90: r.all.quantile(90), P99: r.all.quantile(99), P999: r.all.quantile(99.9),
		Max: r.all.quantile(100),
	}
}

func (h *histogram) quantile(q float64) time.Duration {
	return time.Duration(h.times.ValueAtQuantile(q)) * time.Microsecond
}

// cause is the innermost error, without addresses and ports, so that equal failures count together.
func cause(err error) string {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return "timeout"
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
