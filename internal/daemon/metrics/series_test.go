// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
)

// counting returns a status with this many rules and counts. It allocates the names of the rules anew.
func counting(rules int, packets uint64) *control.Status {
	s := &control.Status{Generation: 1, Read: time.Now(), Default: control.RuleStatus{Name: "default", Verdict: "drop", Packets: packets, Bytes: 60 * packets}}
	for i := range rules {
		s.Rules = append(s.Rules, control.RuleStatus{Name: fmt.Sprintf("rule-%d", i), Verdict: "pass", Packets: packets, Bytes: 60 * packets})
	}
	return s
}

// TestSteps reads every two seconds, starting at any time. Steps must have the increase between two readings. There must be no step next to a failed
// reading. After must return the steps that the client does not have yet.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := uint64(0)
		s := New(func(context.Context) (*control.Status, error) {
			n++
			if n == 4 || n > 7 {
				return nil, errors.New("nothing runs")
			}
			return counting(1, 10*n), nil
		})
		s.asked = time.Now() // a client sends a request
		ctx, cancel := context.WithCancel(t.Context())
		go s.Keep(ctx)
		time.Sleep(15 * time.Second) // readings 1 to 7, without the fourth
		cancel()
		steps := s.After(time.Time{})
		if len(steps) != 4 {
			t.Fatalf("%d steps: %+v", len(steps), steps)
		}
		for i, step := range steps {
			if i > 0 && step.Seconds != 2 || step.Passed != (operate.Amount{Packets: 10, Bytes: 600}) || step.Dropped != step.Passed || len(step.Reasons) != 2 {
				t.Errorf("%+v", step)
			}
		}
		for i, step := range steps {
			if got := s.After(step.Time); len(got) != 3-i {
				t.Errorf("after step %d there are %d", i, len(got))
			}
		}
		if got := s.After(time.Now().Add(time.Hour)); len(got) != 4 {
			t.Errorf("after a time of another clock there are %d", len(got))
		}
	})
}

// TestQuiet counts readings. While no client sends requests and traffic is low, there must be one reading in ten seconds. As soon as a client sends a
// request or traffic rises, there must be one in two seconds. A client must soon get the last two seconds. Steps older than ten minutes must be
// removed.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the following variables
		begin, rate, readings, packets := time.Now(), 10.0, 0, 0.0
		s := New(func(context.Context) (*control.Status, error) {
			mu.Lock()
			defer mu.Unlock()
			readings++
			packets += rate * time.Since(begin).Seconds()
			begin = time.Now()
			return counting(1, uint64(packets)), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Keep(ctx)
		time.Sleep(20 * time.Second)
		read := func() int {
			mu.Lock()
			defer mu.Unlock()
			return readings
		}
		come := func(r float64) {
			mu.Lock()
			defer mu.Unlock()
			rate = r
		}
		during := func(what string, least, most int) {
			t.Helper()
			before := read()
			time.Sleep(time.Minute)
			if n := read() - before; n < least || n > most {
				t.Errorf("%s: %d readings in a minute, want %d to %d", what, n, least, most)
			}
		}
		during("quiet", 5, 7)
		come(2000)
		time.Sleep(12 * time.Second)
		during("a flood", 29, 31)
		come(10)
		time.Sleep(4 * time.Second)
		during("after it", 5, 8)
		time.Sleep(5 * time.Second)
		last := s.After(time.Time{})
		synctest.Wait()
		time.Sleep(2*time.Second + 100*time.Millisecond)
		if n := len(s.After(time.Time{})); n <= len(last) {
			t.Errorf("two seconds after somebody asked there are %d steps, as before", n)
		}
		during("somebody asked", 28, 31)
		during("long ago", 5, 8)
		time.Sleep(20 * time.Minute)
		steps := s.After(time.Time{})
		if age := time.Since(steps[0].Time); age > 11*time.Minute || age < 9*time.Minute {
			t.Errorf("the oldest step is %v old", age)
		}
		total := 0.0
		for _, step := range steps {
			total += step.Seconds
		}
		if total < 9*60 {
			t.Errorf("%.0f s of the past minutes are in steps", total)
		}
	})
}

// TestLate delays readings, as on a busy host. The rates must be computed from the times at which the counters were read.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, n := time.Now(), 0
		s := New(func(context.Context) (*control.Status, error) {
			reading := counting(1, uint64(10*time.Since(begin).Seconds()))
			if n++; n%2 == 0 {
				time.Sleep(time.Second)
			}
			return reading, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		go s.Keep(ctx)
		time.Sleep(30 * time.Second)
		cancel()
		time.Sleep(2 * time.Second) // for the last reading
		for i, step := range s.After(time.Time{}) {
			if rate := float64(step.Passed.Packets) / step.Seconds; rate < 9 || rate > 11 {
				t.Errorf("step %d, of %g s: %.1f packets/s, want about 10", i, step.Seconds, rate)
			}
		}
	})
}

// TestBeside uses counters whose packets other counters count also. These counters must be listed, but not summed.
func TestBeside(t *testing.T) {
	after := counting(1, 10)
	after.Rules = append(after.Rules, control.RuleStatus{Name: "web:syn-answered", Verdict: "sent", Packets: 7, Beside: true},
		control.RuleStatus{Name: "watched", Verdict: "drop", Packets: 5, Observe: true})
	list, passed, dropped := operate.Increases(counting(1, 0), after)
	if len(list) != 4 || passed.Packets != 10 || dropped.Packets != 10 {
		t.Errorf("passed %+v, dropped %+v of %+v", passed, dropped, list)
	}
}

// TestBounded keeps the steps of a policy with more rules than are listed, and of a clock that is set back. They must take less than 2 MB.
func TestBounded(t *testing.T) {
	s := New(nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	now := time.Now()
	for i := range keptSteps + 20 {
		first, next := counting(300/(1+i%10), uint64(i)), counting(300, uint64(i+1))
		next.Read = now.Add(-time.Duration(i) * time.Second)
		first.Read = next.Read.Add(-step)
		s.add(first, next)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	steps := s.After(time.Time{})
	if size := int64(after.HeapAlloc) - int64(before.HeapAlloc); size > 2<<20 || len(steps) != keptSteps {
		t.Errorf("%d steps take %d bytes", len(steps), size)
	}
	for i, step := range steps {
		if len(step.Reasons) != mostListed || step.Others == nil || i > 0 && !step.Time.After(steps[i-1].Time) {
			t.Fatalf("step %d: %+v", i, step)
		}
	}
}

// TestClockIsSet sets the clock forward and back between readings. Steps must keep their distances, up to a step before the change. A client that
// requests the steps after its last step must get all steps when the clock was set back.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{-2 * time.Hour, -5 * time.Second, -300 * time.Millisecond, 0, time.Hour} {
		s := New(nil)
		now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) // without a monotonic part
		add := func() {
			first, next := counting(1, 0), counting(1, 10)
			first.Read, next.Read = now, now.Add(step)
			s.add(first, next)
			now = next.Read
		}
		for range 5 {
			add()
		}
		last := s.After(time.Time{})[4].Time
		now = now.Add(by)
		for range 5 {
			add()
		}
		steps := s.After(time.Time{})
		if end := steps[len(steps)-1].Time; !end.Equal(now) {
			t.Errorf("set by %v: the last step ends at %v, want %v", by, end, now)
		}
		for i := 1; i < len(steps); i++ {
			want := step
			if i == 5 && by > -step/2 {
				want += by
			}
			if by < time.Hour && steps[i].Time.Sub(steps[i-1].Time) != want {
				t.Errorf("set by %v: step %d ends %v after the one before, want %v", by, i, steps[i].Time.Sub(steps[i-1].Time), want)
			}
		}
		want := 5
		switch by {
		case -2 * time.Hour:
			want = 10
		case -5 * time.Second:
			want = 3 // the new steps end after the last step that the client knows
		}
		if n := len(s.After(last)); n != want {
			t.Errorf("set by %v: %d steps after the last one that is known, want %d", by, n, want)
		}
	}
}
