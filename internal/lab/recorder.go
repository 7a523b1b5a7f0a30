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
	all     Times
	now     Times
	phases  [phases]Times
	errors  map[string]uint64
	failed  uint64 // since the last interval
	bytes   int64
	stopped uint64        // interrupted by the end of the context
	last    time.Duration // end of the last interval, for the sampler alone
	inTime  uint64        // answered before the last request started
}

func newRecorder() *recorder {
	r := &recorder{all: newTimes(), now: newTimes(), errors: make(map[string]uint64)}
	for i := range r.phases {
		r.phases[i] = newTimes()
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
	r.inTime = uint64(r.all.Count())
}

// interval returns the records since the last call. The parameter late tells that no requests started in this time.
func (r *recorder) interval(at time.Duration, late bool) Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Sample{
		Time: at, OK: uint64(r.now.Count()), Failed: r.failed, Late: late,
		P50: r.now.Quantile(50), P99: r.now.Quantile(99),
	}
	if at > r.last && !late {
		s.Rate = float64(s.OK) / (at - r.last).Seconds()
	}
	r.last, r.failed = at, 0
	r.now.counts.Reset()
	return s
}

// summary returns all records. The parameter began is the length of the time in which requests started.
func (r *recorder) summary(began time.Duration) LoadSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := LoadSummary{
		Time: began, OK: uint64(r.all.Count()), Interrupted: r.stopped, Errors: maps.Clone(r.errors),
		Bytes: uint64(r.bytes), Rate: float64(r.inTime) / began.Seconds(), Latency: r.all.Latency(),
	}
	for _, n := range r.errors {
		s.Failed += n
	}
	for i, name := range phaseNames {
		p := PhaseTimes{Name: name, Requests: uint64(r.phases[i].Count()), Latency: r.phases[i].Latency()}
		if p.Requests > 0 {
			s.Phases = append(s.Phases, p)
		}
	}
	return s
}

// sampler reports intervals of a load while it runs.
type sampler struct {
	client *client
	ended  chan time.Duration // receives the time in which requests began
	done   chan struct{}      // closed: all requests have a result
	quit   chan struct{}      // closed: the last interval was reported
}

func (c *client) startSampler() *sampler {
	s := &sampler{c, make(chan time.Duration), make(chan struct{}), make(chan struct{})}
	go s.run()
	return s
}

// over ends the time in which requests start, and returns its length.
func (s *sampler) over() time.Duration {
	s.client.record.over()
	took := time.Since(s.client.began)
	s.ended <- took
	return took
}

// stop waits until the last interval was reported.
func (s *sampler) stop() {
	close(s.done)
	<-s.quit
}

func (s *sampler) run() {
	defer close(s.quit)
	ticker := time.NewTicker(s.client.Interval)
	defer ticker.Stop()
	late := false
	for {
		select {
		case <-ticker.C:
			s.report(late)
		case at := <-s.ended:
			// Shortly after a tick the interval is too short: its requests are reported with the rest.
			if last := s.client.record.last; last == 0 || at-last >= s.client.Interval/10 {
				s.report(false)
			}
			late = true
			ticker.Reset(s.client.Interval)
		case <-s.done:
			s.report(true)
			return
		}
	}
}

// report reports an interval. A late interval is reported only if something happened in it.
func (s *sampler) report(late bool) {
	sample := s.client.record.interval(time.Since(s.client.began), late)
	if s.client.OnSample != nil && (!late || sample.OK+sample.Failed > 0) {
		s.client.OnSample(sample)
	}
}

// Times is a histogram of times, in nanoseconds with three digits, up to an hour. The zero value is empty, and its add must not be called.
type Times struct{ counts *hdrhistogram.Histogram }

func newTimes() Times { return Times{hdrhistogram.New(1, int64(time.Hour), 3)} }

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
