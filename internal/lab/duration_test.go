// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

// TestLoadDuration checks that clients stop in time, and that requests under way at the end have an outcome.
func TestLoadDuration(t *testing.T) {
	to := listen(t, answering(func() { time.Sleep(100 * time.Millisecond) }, plainAnswer))
	for name, o := range map[string]LoadOptions{
		"closed loop": {Connections: 4}, "open loop": {Rate: 40}, "open loop, few connections": {Rate: 40, Connections: 2},
	} {
		t.Run(name, func(t *testing.T) {
			o.Server, o.Duration, o.Interval, o.Timeout = to, 450*time.Millisecond, 100*time.Millisecond, 2*time.Second
			unhurried(t, func() error { return lasted(t, o, mustLoad(t, o)) })
		})
	}
}

// lasted checks a load of TestLoadDuration. It returns an error for results that a busy machine may have changed.
func lasted(t *testing.T, o LoadOptions, sum LoadSummary) error {
	t.Helper()
	// 40 a second, but with two connections 20 of them are answered a second.
	want := uint64(18)
	if o.Rate == 0 {
		want = 20 // the fifth of each connection begins at 400 ms
	}
	if sum.OK > want || sum.Failed != 0 || sum.Interrupted != 0 {
		t.Errorf("got %+v; want %d answers", sum, want)
	}
	if sum.Time < 420*time.Millisecond {
		t.Errorf("requests began for %v, want 450 ms", sum.Time)
	}
	if sum.OK < want*9/10 {
		return fmt.Errorf("%d answers, want %d", sum.OK, want)
	}
	if sum.Rate > float64(sum.OK)/sum.Time.Seconds()*0.95 {
		t.Errorf("%.1f answers per second include those after the end", sum.Rate)
	}
	return below("requests began for", sum.Time, time.Second)
}

// TestInterruptedLoad checks that the end of the context ends a load at once, also one that waits.
func TestInterruptedLoad(t *testing.T) {
	stalled := listen(t, func(net.Conn) { time.Sleep(3 * time.Second) })
	for name, o := range map[string]LoadOptions{
		"closed loop": {Connections: 4}, "open loop": {Rate: 40}, "waiting for a connection": {Rate: 1000, Connections: 4},
	} {
		t.Run(name, func(t *testing.T) {
			o.Server, o.Timeout = stalled, 10*time.Second
			unhurried(t, func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				began := time.Now()
				sum, err := Load(ctx, o)
				if err != nil || sum.OK+sum.Failed != 0 || sum.Interrupted > 9 {
					t.Errorf("got %+v, %v; want the requests under way as interrupted", sum, err)
				}
				if sum.Interrupted < 4 {
					return fmt.Errorf("%d requests were interrupted, want 4", sum.Interrupted)
				}
				return below("the load ended after", time.Since(began), time.Second)
			})
		})
	}
}

// TestStalledAtARate has a server that never answers and few connections. Each due request must have timed out at the end, also the requests that had
// to wait.
func TestStalledAtARate(t *testing.T) {
	stalled := listen(t, func(net.Conn) { time.Sleep(3 * time.Second) })
	sum := mustLoad(t, LoadOptions{Server: stalled, Rate: 200, Connections: 3, Duration: 500 * time.Millisecond, Timeout: 200 * time.Millisecond})
	if sum.OK != 0 || sum.Errors[FailedTimeout] != 100 || sum.Failed != 100 {
		t.Errorf("got %+v; want 100 timeouts", sum)
	}
}
