// This file keeps what the policy decided in the past minutes, for the live page. In: a function that reads the status. Out:
// the steps of the past ten minutes, each with the increase of the counters.

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

// The bounds of what is kept. A step takes about 100 bytes for each reason, beside its name. So all of them take less than 2 MB,
// however many rules the policy has.
const (
	step       = 2 * time.Second
	keptSteps  = 300 // ten minutes
	mostListed = 32  // reasons of a step; the others are one sum
	readShare  = 50  // a step is at least so many times as long as a reading takes, which so takes 2% of the time at most

	quietStep = 10 * time.Second // while it is quiet and nobody looks
	quietRate = 1000             // packets a second, from which on it is not: what policies have by default for `detect: {least: …}`
	lookTime  = time.Minute      // for which somebody looks who has asked once: a page asks every two seconds
)

// Step is what was decided in some seconds.
type Step struct {
	Time       time.Time          `json:"time"`    // its end; each step has a later one
	Seconds    float64            `json:"seconds"` // its length, by a clock that is never set
	Generation int                `json:"generation"`
	Passed     operate.Amount     `json:"passed"`
	Dropped    operate.Amount     `json:"dropped"`
	Reasons    []operate.Increase `json:"reasons"` // the most frequent first, 32 at most
	Others     *operate.Amount    `json:"others,omitempty"`
}

// Series has the steps of the past minutes. While the status cannot be read, and where nothing runs, there is a gap.
type Series struct {
	read func(context.Context) (*control.Status, error)

	mu    sync.Mutex
	steps []Step        // the oldest first
	asked time.Time     // when somebody asked last
	wake  chan struct{} // somebody asks whom steps of quietStep are too long
}

// New makes a Series of what a function reads.
func New(read func(context.Context) (*control.Status, error)) *Series {
	return &Series{read: read, wake: make(chan struct{}, 1)}
}

// Keep reads every two seconds until ctx ends, and every ten while nobody asks and few packets come. It reads less often when readings take
// more than a fiftieth of that. One that takes long because the host is busy counts little.
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

// wait waits until somebody wakes it, and returns false when ctx has ended.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-time.After(d):
	}
	return true
}

// rests reports whether nobody looks, and few packets came in the last step.
func (s *Series) rests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) < lookTime || len(s.steps) == 0 {
		return false
	}
	select {
	case <-s.wake: // by who has asked long ago
	default:
	}
	last := &s.steps[len(s.steps)-1]
	return float64(last.Passed.Packets+last.Dropped.Packets) < quietRate*last.Seconds
}

// add keeps the step between two readings, and forgets the oldest when there are too many.
func (s *Series) add(before, after *control.Status) {
	next := Step{Time: after.Read.UTC().Round(time.Millisecond), Seconds: after.Read.Sub(before.Read).Seconds(), Generation: after.Generation}
	next.Reasons, next.Passed, next.Dropped = operate.Increases(before, after)
	if len(next.Reasons) > mostListed {
		next.Others = new(operate.Amount)
		for _, r := range next.Reasons[mostListed:] {
			next.Others.Add(r.Amount)
		}
		next.Reasons = slices.Clone(next.Reasons[:mostListed]) // a part would keep the whole list
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setBack(next.Time.Add(-after.Read.Sub(before.Read)))
	if n := len(s.steps); n > 0 && !next.Time.After(s.steps[n-1].Time) { // by less than a step
		next.Time = s.steps[n-1].Time.Add(time.Millisecond)
	}
	old := 0
	for old < len(s.steps) && (len(s.steps)-old >= keptSteps || next.Time.Sub(s.steps[old].Time) > keptSteps*step) {
		old++
	}
	s.steps = slices.Delete(s.steps, 0, old)
	s.steps = append(s.steps, next)
}

// setBack moves the steps to the times that they have by a clock that was set back, when a step that begins now would begin before the last
// one ends. Else each further step would follow the last one at once until the clock has caught up, and a chart of them would stand still.
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

// After returns the steps after a time. When no step is at or after it they are of another clock, as before a restart, and
// After returns all.
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
