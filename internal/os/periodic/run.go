// SPDX-License-Identifier: Apache-2.0

package periodic

import (
	"context"
	"time"
)

// Sleep waits for d or until ctx ends. It returns false if ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// Wait waits for the duration that Left returns for d, or until ctx ends. It returns false if ctx has ended.
func Wait(ctx context.Context, d time.Duration) bool { return Sleep(ctx, Left(d)) }

// Run runs a task at once, and repeats it until ctx ends. Between the end of a run and the next run, it waits for period. A task that must wait first
// uses a loop instead: `for periodic.Wait(ctx, period)`.
func Run(ctx context.Context, period time.Duration, task func()) {
	RunPaced(ctx, func() time.Duration {
		task()
		return period
	})
}

// RunPaced does the same as Run, but the task returns the pause before its next run.
func RunPaced(ctx context.Context, task func() (pause time.Duration)) {
	for ctx.Err() == nil {
		Wait(ctx, task())
	}
}

// Within returns the result of fn, or the error of ctx as soon as ctx ends. fn may continue to run after that, so it must be harmless to abandon fn.
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
