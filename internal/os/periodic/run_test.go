// SPDX-License-Identifier: Apache-2.0

package periodic

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun checks when tasks run: a task that runs at once, a task that waits first, and a task that returns its pause. No run may begin after ctx has
// ended.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(ctx context.Context, note func())
		want []int // times of the runs, in seconds
	}{
		"at once": {func(ctx context.Context, note func()) { Run(ctx, 2*time.Second, note) }, []int{0, 2, 4}},
		"waits first": {func(ctx context.Context, note func()) {
			for Wait(ctx, 2*time.Second) {
				note()
			}
		}, []int{2, 4}},
		"paced": {func(ctx context.Context, note func()) {
			pause := time.Duration(0)
			RunPaced(ctx, func() time.Duration {
				note()
				pause += time.Second
				return pause
			})
		}, []int{0, 1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(left(time.Since(start), time.Second)) // wait for a whole second of this process
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
				defer cancel()
				var at []int
				c.run(ctx, func() { at = append(at, int(time.Since(began).Seconds())) })
				if !slices.Equal(at, c.want) {
					t.Errorf("ran at %d, want %d", at, c.want)
				}
			})
		})
	}
}

// TestWithin calls a function that returns in time, and a function that returns just when the context ends. The late result must not be written to
// memory that the caller reads.
func TestWithin(t *testing.T) {
	failed := errors.New("no")
	if n, err := Within(t.Context(), func() (int, error) { return 5, failed }); n != 5 || err != failed {
		t.Errorf("in time: %d, %v", n, err)
	}
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		n, err := Within(ctx, func() (int, error) {
			defer close(returned)
			cancel()
			return 5, nil
		})
		if n != 5 && (n != 0 || !errors.Is(err, context.Canceled)) {
			t.Fatalf("at the end: %d, %v", n, err)
		}
		<-returned
	}
}
