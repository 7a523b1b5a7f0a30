package api

import (
	"fmt"
	"net/http"
)

// slots bound how many requests of a kind are answered at a time.
type slots struct {
	free chan struct{}
	what string
}

func newSlots(n int, what string) *slots { return &slots{make(chan struct{}, n), what} }

// take takes a slot, or is an error when there is none.
func (s *slots) take() (release func(), err error) {
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free }, nil
	default:
		return nil, &Error{http.StatusTooManyRequests, fmt.Sprintf("%s: %d at a time are answered, and there are that many", s.what, cap(s.free)),
			"end one, or ask again later"}
	}
}
