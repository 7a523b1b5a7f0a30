// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// recorder counts requests and their times: in all, by phase, and since the last interval.
type recorder struct {
	mu      sync.Mutex
	all     histogram
	now     histogram
	phases  [phases]histogram
	errors  map[string]uint64
	failed  uint64 // since the last interval
	bytes   int64
	stopped uint64        // interrupted by the end of the context
	last    time.Duration // end of the last interval, for the sampler alone
	inTime  uint64        // answered before the last request started
}

// histogram counts times, in microseconds with three digits.
type histogram struct{ *hdrhistogram.Histogram }

func newRecorder(longest time.Duration) *recorder {
	// An answer may arrive just before the deadline and be recorded after it.
	highest := max(2*longest, time.Second).Microseconds()
	fresh := func() histogram { return histogram{hdrhistogram.New(1, highest, 3)} }
	r := &recorder{all: fresh(), now: fresh(), errors: make(map[string]uint64)}
	for i := range r.phases {
		r.phases[i] = fresh()
	}
	return r
}

// add records the result of a request, which took this time.
func (r *recorder) add(took time.Duration, o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.err != nil {
		r.errors[cause(o.err)]++
		r.failed++
		return
	}
	r.bytes += o.bytes
	r.all.add(took)
	r.now.add(took)
	for i, t := range o.phases {
		if t >= 0 {
			r.phases[i].add(t)
		}
	}
}

// interrupt counts a request whose result nobody waited for.
func (r *recorder) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped++
}

// over records that no more requests start.
func (r *recorder) over() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inTime = uint64(r.all.TotalCount())
}

// interval returns the records since the last call. The parameter late tells that no requests started in this time.
func (r *recorder) interval(at time.Duration, late bool) Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Sample{
		Time: at, OK: uint64(r.now.TotalCount()), Failed: r.failed, Late: late,
		P50: r.now.quantile(50), P99: r.now.quantile(99),
	}
	if at > r.last && !late {
		s.Rate = float64(s.OK) / (at - r.last).Seconds()
	}
	r.last, r.failed = at, 0
	r.now.Reset()
	return s
}

// summary returns all records. The parameter began is the length of the time in which requests started.
func (r *recorder) summary(began time.Duration) LoadSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := LoadSummary{
		Time: began, OK: uint64(r.all.TotalCount()), Interrupted: r.stopped, Errors: maps.Clone(r.errors),
		Bytes: uint64(r.bytes), Rate: float64(r.inTime) / began.Seconds(), Latency: r.all.latency(),
	}
	for _, n := range r.errors {
		s.Failed += n
	}
	for i, name := range phaseNames {
		p := PhaseTimes{Name: name, Requests: uint64(r.phases[i].TotalCount()), Latency: r.phases[i].latency()}
		if p.Requests > 0 {
			s.Phases = append(s.Phases, p)
		}
	}
	return s
}

// add counts a time. Times below a microsecond count as one microsecond.
func (h histogram) add(t time.Duration) {
	// The value is in range, so this cannot fail.
	_ = h.RecordValue(min(max(t.Microseconds(), 1), h.HighestTrackableValue()))
}

func (h histogram) latency() Latency {
	return Latency{
		Mean: time.Duration(h.Mean() * float64(time.Microsecond)),
		P50:  h.quantile(50), P90: h.quantile(90), P99: h.quantile(99), P999: h.quantile(99.9), Max: h.quantile(100),
	}
}

func (h histogram) quantile(q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond
}
