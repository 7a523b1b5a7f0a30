package periodic

import (
	"context"
	"time"
)

// Sleep waits, and returns false when ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// Wait is Sleep for as long as Left says.
func Wait(ctx context.Context, d time.Duration) bool { return Sleep(ctx, Left(d)) }

// Run does a task at once, and again when a period is over after it, until ctx ends. A task that is to wait first is the body of a loop:
// `for periodic.Wait(ctx, period)`.
func Run(ctx context.Context, period time.Duration, task func()) {
	RunPaced(ctx, func() time.Duration {
		task()
		return period
	})
}

// RunPaced is Run for a task that returns how long to wait for the next time.
func RunPaced(ctx context.Context, task func() (pause time.Duration)) {
	for ctx.Err() == nil {
		Wait(ctx, task())
	}
}

// Within returns fn's result, or ctx's error as soon as ctx ends. fn must be harmless to abandon: it may go on after that.
func Within[T any](ctx context.Context, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := fn()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
