// SPDX-License-Identifier: Apache-2.0

// This file keeps the decisions of the policy in the past minutes, for the live page. In: a function that reads the status. Out: the steps of the
// past ten minutes, each with the increase of the counters.

package metrics

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// The limits of the series. For each reason a step takes about 100 bytes, plus the reason's name. So all steps together take less than 2 MB, for any
// number of rules in the policy.
const (
	step       = 2 * time.Second
	keptSteps  = 300 // ten minutes
	mostListed = 32  // reasons of a step; the others are summed
	readShare  = 50  // a step is at least this many times as long as a reading, so readings take at most 2% of the time

	quietStep = 10 * time.Second // length of a step while traffic is low and no client requests the series
	quietRate = 1000             // packets a second, above which traffic is not low: the policies' default for `detect: {least: …}`
	lookTime  = time.Minute      // how long a client counts as present after a request; a page sends a request every two seconds
)

// Step contains the decisions in a time span of some seconds.
type Step struct {
	Time       time.Time          `json:"time"`    // the end of the step; each step has a later end than the previous one
	Seconds    float64            `json:"seconds"` // the length of the step, by a monotonic clock
	Generation int                `json:"generation"`
	Passed     operate.Amount     `json:"passed"`
	Dropped    operate.Amount     `json:"dropped"`
	Reasons    []operate.Increase `json:"reasons"` // the most frequent first, at most 32
	Others     *operate.Amount    `json:"others,omitempty"`
}

// Series contains the steps of the past minutes. It has gaps while the status cannot be read, and while no policy runs.
type Series struct {
	read func(context.Context) (*control.Status, error)

	mu    sync.Mutex
	steps []Step        // the oldest first
	asked time.Time     // when a client last asked
	wake  chan struct{} // receives when a client sends a request for which steps of quietStep are too long
}

// New makes a Series. read reads the status.
func New(read func(context.Context) (*control.Status, error)) *Series {
	return &Series{read: read, wake: make(chan struct{}, 1)}
}

// Keep reads the status every two seconds until ctx ends. While no client sends requests and traffic is low, it reads every ten seconds. It also
// reads less often when a reading takes more than a fiftieth of the interval. One slow reading on a busy host has little effect.
func (s *Series) Keep(ctx context.Context) {
	var before *control.Status
	var cost time.Duration
	for {
		begin := time.Now()
		after, err := s.read(ctx)
		now := time.Now()
		if err != nil {
			after = nil
		}
		if before != nil && after != nil {
			s.add(before, after)
		}
		before = after
		cost = min(now.Sub(begin), 2*cost+time.Millisecond)
		took := now.Sub(begin)
		if !wait(ctx, max(periodic.Left(step-min(took, step/2)), readShare*cost-took), nil) ||
			s.rests() && !wait(ctx, periodic.Left(quietStep-step), s.wake) {
			return
		}
	}
}

// wait waits for a time, or until wake receives. It returns false when ctx has ended.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-time.After(d):
	}
	return true
}

// rests reports whether no client is present and the last step had few packets.
func (s *Series) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) < lookTime || len(s.steps) == 0 {
		return false
	}
	select {
	case <-s.wake: // the signal is from a client that sent its request long ago
	default:
	}
	last := &s.steps[len(s.steps)-1]
	return float64(last.Passed.Packets+last.Dropped.Packets) < quietRate*last.Seconds
}

// add appends the step between two readings, and removes the oldest steps when there are too many.
func (s *Series) add(before, after *control.Status) {
	next := Step{Time: after.Read.UTC().Round(time.Millisecond), Seconds: after.Read.Sub(before.Read).Seconds(), Generation: after.Generation}
	next.Reasons, next.Passed, next.Dropped = operate.Increases(before, after)
	if len(next.Reasons) > mostListed {
		next.Others = new(operate.Amount)
		for _, r := range next.Reasons[mostListed:] {
			next.Others.Add(r.Amount)
		}
		next.Reasons = slices.Clone(next.Reasons[:mostListed]) // a subslice would keep the whole list in memory
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setBack(next.Time.Add(-after.Read.Sub(before.Read)))
	if n := len(s.steps); n > 0 && !next.Time.After(s.steps[n-1].Time) { // the clock was set back by less than a step
		next.Time = s.steps[n-1].Time.Add(time.Millisecond)
	}
	old := 0
	for old < len(s.steps) && (len(s.steps)-old >= keptSteps || next.Time.Sub(s.steps[old].Time) > keptSteps*step) {
		old++
	}
	s.steps = slices.Delete(s.steps, 0, old)
	s.steps = append(s.steps, next)
}

// setBack shifts the times of all steps when the clock was set back, so that they fit the new clock. It does so when the next step would begin before
// the end of the last one. Otherwise the time of each further step would only be a millisecond after the last step until the clock has caught up, and
// a chart would not move.
func (s *Series) setBack(begin time.Time) {
	n := len(s.steps)
	if n == 0 || s.steps[n-1].Time.Sub(begin) < step/2 {
		return
	}
	by := begin.Sub(s.steps[n-1].Time).Round(time.Millisecond)
	for i := range s.steps {
		s.steps[i].Time = s.steps[i].Time.Add(by)
	}
}

// After returns the steps after a time. When no step is at or after that time, the time must be from another clock, as before a restart. In that case
// After returns all steps.
func (s *Series) After(t time.Time) []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Now()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	n := len(s.steps)
	if n == 0 || s.steps[n-1].Time.Before(t) {
		return append([]Step{}, s.steps...)
	}
	from, _ := slices.BinarySearchFunc(s.steps, t, func(s Step, t time.Time) int {
		if s.Time.After(t) {
			return 1
		}
		return -1
	})
	return append([]Step{}, s.steps[from:]...)
}
