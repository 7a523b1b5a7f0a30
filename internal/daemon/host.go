// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// Running is the policy that runs on a host.
type Running struct {
	Policy  string // path of the policy's file; "": no policy runs
	Trial   bool
	Healthy bool // the policy is in force
}

// Host is where policies are applied.
type Host interface {
	Apply(ctx context.Context, policy string, trial time.Duration) error // puts the policy on trial for this time
	Confirm(ctx context.Context) error
	Rollback(ctx context.Context, policy string) error // ends the trial of this policy; no error when it has ended already
	Running(ctx context.Context) (Running, error)
}

// OnHost applies policies in the same way as the commands.
type OnHost struct{ operate.Host }

// Apply puts a policy on trial, on the devices that it names.
func (h OnHost) Apply(ctx context.Context, policy string, trial time.Duration) error {
	o := operate.Order{Policy: policy, Confirm: trial.String()}
	_, _, err := h.Host.Apply(ctx, o)
	return told(err)
}

// Confirm ends the trial and keeps the policy.
func (h OnHost) Confirm(ctx context.Context) error {
	_, err := h.Host.Confirm(ctx)
	var saved *operate.SavedError
	if errors.As(err, &saved) { // the policy runs
		h.Warn(err)
		return nil
	}
	return err
}

// Rollback ends the trial of a policy and returns to the previous policy.
func (h OnHost) Rollback(ctx context.Context, policy string) error {
	s, err := h.Instance.Status(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) || err == nil && (s.Policy != policy || s.Trial == nil) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.Trial.Left < 0.5 { // the kernel is about to return by itself; a second rollback would return to an older policy
		return nil
	}
	_, err = h.Host.Rollback(ctx)
	return err
}

// Running returns the policy that the kernel runs.
func (h OnHost) Running(ctx context.Context) (Running, error) {
	s, err := h.Instance.Status(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return Running{}, nil
	}
	if err != nil {
		return Running{}, err
	}
	return runningOf(s), nil
}

func runningOf(s *control.Status) Running {
	return Running{Policy: s.Policy, Trial: s.Trial != nil, Healthy: len(s.Open) == 0}
}

// told returns an error as one line that contains the positions in the policy.
func told(err error) error {
	if err == nil {
		return nil
	}
	texts := []string{}
	for _, p := range operate.Problems(err) {
		texts = append(texts, p.String())
	}
	return fmt.Errorf("%s", strings.Join(texts, "; "))
}
