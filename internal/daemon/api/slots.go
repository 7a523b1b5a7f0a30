// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// slots limits how many requests of a kind are answered at a time.
type slots struct {
	free chan struct{}
	what string
}

func newSlots(n int, what string) *slots { return &slots{make(chan struct{}, n), what} }

// slotWait is how long a request waits for a slot.
const slotWait = 10 * time.Second

// wait waits until a slot is free, and takes the slot. It returns an error after slotWait.
func (s *slots) wait(ctx context.Context) (release func(), err error) {
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(slotWait):
		return nil, s.full()
	}
}

func (s *slots) full() error {
	return &Error{http.StatusTooManyRequests, fmt.Sprintf("%s: %d at a time, and there are that many", s.what, cap(s.free)),
		"ask again later"}
}

// take takes a slot, or returns an error when none is free.
func (s *slots) take() (release func(), err error) {
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free }, nil
	default:
		return nil, s.full()
	}
}
