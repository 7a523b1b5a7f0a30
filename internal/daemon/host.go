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
	Policy  string // its file; "": none runs
	Trial   bool
	Healthy bool // it is in force
}

// Host is where policies are applied.
type Host interface {
	Apply(ctx context.Context, policy string, trial time.Duration) error // for a time, unless it is confirmed
	Confirm(ctx context.Context) error
	Rollback(ctx context.Context, policy string) error // ends the trial of a policy; nothing when it has ended
	Running(ctx context.Context) (Running, error)
}

// OnHost applies policies as commands do.
type OnHost struct{ operate.Host }

// Apply has a policy run for a time, on the devices that it names.
func (h OnHost) Apply(ctx context.Context, policy string, trial time.Duration) error {
	o := operate.Order{Policy: policy, Confirm: trial.String()}
	_, _, err := h.Host.Apply(ctx, o)
	return told(err)
}

// Confirm keeps it.
func (h OnHost) Confirm(ctx context.Context) error {
	_, err := h.Host.Confirm(ctx)
	var saved *operate.SavedError
	if errors.As(err, &saved) { // it runs
		h.Warn(err)
		return nil
	}
	return err
}

// Rollback ends its trial.
func (h OnHost) Rollback(ctx context.Context, policy string) error {
	s, err := h.Instance.Status(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) || err == nil && (s.Policy != policy || s.Trial == nil) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.Trial.Left < 0.5 { // the kernel is about to do so, and twice would be too far
		return nil
	}
	_, err = h.Host.Rollback(ctx)
	return err
}

// Running asks the kernel.
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

// told is an error in one line, with the places in the policy.
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
