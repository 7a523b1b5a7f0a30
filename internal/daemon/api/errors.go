// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"io/fs"
	"net/http"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
)

// Error is an error with an HTTP status.
type Error struct {
	Status       int
	Text, Remedy string
}

func (e *Error) Error() string { return e.Text }

// Hint returns the remedy.
func (e *Error) Hint() string { return e.Remedy }

// Failure is the body of an answer that is an error.
type Failure struct {
	operate.Problem
	More []operate.Problem `json:"more,omitempty"` // the other errors, when there are several
}

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	var own *Error
	var removed *generation.RemovedError
	var mistake *policy.Error
	var mistakes policy.Errors
	var refused ban.Refusals
	var set *ban.SetError
	var capture *sample.CaptureError
	var before *control.PreviousError
	var lockout *control.LockoutError
	var packet *operate.PacketError
	var probe *control.ProbeError
	var order *operate.OrderError
	var entries *operate.EntriesError
	var fetch *feed.FetchError
	var body *feed.BodyError
	var wait *feed.WaitError
	switch {
	case errors.As(err, &own):
		return own.Status
	case errors.As(err, &removed), errors.Is(err, datapath.ErrLocked), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled): // the daemon ends
		return http.StatusServiceUnavailable
	case errors.As(err, &fetch), errors.As(err, &body):
		return http.StatusBadGateway
	case errors.As(err, &wait):
		return http.StatusTooManyRequests
	case errors.Is(err, datapath.ErrNotLoaded), errors.Is(err, fs.ErrNotExist), errors.Is(err, lists.ErrNoFeed):
		return http.StatusNotFound
	case errors.As(err, &packet), errors.As(err, &order), errors.As(err, &entries):
		return http.StatusBadRequest
	case errors.As(err, &mistakes), errors.As(err, &mistake):
		return http.StatusUnprocessableEntity
	case errors.Is(err, datapath.ErrNoTrial), errors.Is(err, operate.ErrNoneHeld), errors.Is(err, datapath.ErrExpired), errors.As(err, &refused), errors.As(err, &set),
		errors.As(err, &capture), errors.As(err, &before), errors.As(err, &lockout), errors.As(err, &probe):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// Refuse answers a request with an error.
func Refuse(w http.ResponseWriter, r *http.Request, e *Error) {
	c := &Call{request: r, out: w}
	c.fail(e)
}

// failure returns the body of the answer for an error.
func failure(err error) Failure {
	list := operate.Problems(err)
	return Failure{list[0], list[1:]}
}
