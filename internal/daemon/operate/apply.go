// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Order says which policy to apply, and how.
type Order struct {
	Policy  string   `json:"policy"`            // path of the file on this host
	Target  string   `json:"target,omitempty"`  // "" means auto
	Mode    string   `json:"mode,omitempty"`    // auto, native, tc, generic; "" means that of an earlier order, auto at first
	Devices []string `json:"devices,omitempty"` // used instead of the policy's devices
	Confirm string   `json:"confirm,omitempty"` // the time after which the previous policy returns unless the new one is confirmed, such as 60s
	DryRun  bool     `json:"dry_run,omitempty"` // perform all steps except attaching the programs
	Force   bool     `json:"force,omitempty"`   // apply the policy even if it interrupts the client's session
	Text    []byte   `json:"-"`                 // the policy's text, if it is not to be read from the file; Policy is then its name
	Boot    bool     `json:"-"`                 // make systemd apply the policy after each reboot
	Later   bool     `json:"-"`                 // with Boot: the caller calls Enable after the confirmation

	Sessions []facts.Session `json:"-"` // the client's sessions, which the policy must not interrupt
}

// AsRunning sets the target and devices of the order to those of the running policy.
func (o *Order) AsRunning(s *control.Status) { o.Target, o.Devices = string(s.Target), deviceNames(s) }

// ShortestTrial and longestTrial limit the length of a trial. Nobody could confirm a shorter trial by hand, and a longer one protects from nothing.
const (
	ShortestTrial = 2 * time.Second
	longestTrial  = 24 * time.Hour
)

// OrderError is the error for an order that is not valid.
type OrderError struct{ Problem, Remedy string }

func (e *OrderError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *OrderError) Hint() string { return e.Remedy }

// Trial returns the duration in Confirm, 0 when Confirm is empty.
func (o Order) Trial() (time.Duration, error) {
	if o.Confirm == "" {
		return 0, nil
	}
	d, err := policy.ParseDuration(o.Confirm)
	if err != nil || d < ShortestTrial || d > longestTrial {
		return 0, &OrderError{fmt.Sprintf("confirm %q is not a time from 2s to 24h", o.Confirm), "write it as 60s, 5m or 1h"}
	}
	return d, nil
}

// Apply makes a policy the running one. If the policy should survive a reboot, Apply saves it for the next boot. If Apply returns both a result and
// an error, the policy is applied, but a later step has failed.
func (h Host) Apply(ctx context.Context, o Order) (*control.Applied, *policy.Policy, error) {
	start := time.Now()
	trial, err := o.Trial()
	if err != nil {
		return nil, nil, err
	}
	if err := statedir.Check(h.Dir, h.State); err != nil { // the check is repeated under the lock, but copies and lists are made before the lock is taken
		return nil, nil, err
	}
	s, err := h.saving(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	defer s.discard()
	s.trial = trial
	options := control.ApplyOptions{
		Target: plan.Target(o.Target), Devices: o.Devices, Mode: datapath.Mode(o.Mode), Kept: s.kept, DryRun: o.DryRun, Confirm: trial,
		Boot: s.id(), Origin: manifest.OriginOf(o.Policy, s.text), Costs: h.Costs(), Fetch: h.Instance.Fetcher(), Read: s.verify,
		Daemon: o.Later && boot.Running(),
	}
	if !o.Force {
		options.Sessions = o.Sessions
	}
	before := h.temporaryNow(ctx)
	applied, err := h.Instance.Apply(ctx, s.policy, options)
	if err != nil {
		return nil, nil, err
	}
	if !o.DryRun && applied.Target != plan.TargetXDP { // an XDP program already contains the temporary rules
		h.keepTemporary(context.WithoutCancel(ctx), before)
	}
	saved := s.keep(ctx)
	applied.Seconds = time.Since(start).Seconds()
	if !o.DryRun {
		saved = cmp.Or(saved, h.OpenLate(context.WithoutCancel(ctx), nil)) // the policy is in force: it is too late to cancel
	}
	applied.Notes = append(applied.Notes, s.notes...)
	return applied, s.policy, saved
}

// Confirm keeps the policy that is on trial, also for the next boot.
func (h Host) Confirm(ctx context.Context) (control.Now, error) {
	now, err := h.Instance.Confirm(ctx)
	if err == nil {
		err = h.rememberOr(ctx, now)
	}
	return now, err
}

// Rollback returns to the previous policy, also for the next boot.
func (h Host) Rollback(ctx context.Context) (control.Now, error) {
	before := h.temporaryNow(ctx)
	now, err := h.Instance.Rollback(ctx)
	if err == nil {
		h.keepTemporary(context.WithoutCancel(ctx), before)   // the previous policy still has its old temporary rules
		if _, stale := h.SyncLists(ctx, true); stale != nil { // the lists of the previous policy are from its last run; even old lists are better than none
			h.Warn(stale)
		}
		err = h.rememberOr(ctx, now)
	}
	return now, err
}

// SavedError is the error when a change was made, but will be lost at the next boot.
type SavedError struct{ Err error }

func (e *SavedError) Error() string { return e.Err.Error() }

// Unwrap returns the inner error.
func (e *SavedError) Unwrap() error { return e.Err }

func (h Host) rememberOr(ctx context.Context, now control.Now) error {
	if err := h.remember(ctx, now); err != nil {
		return &SavedError{err}
	}
	return nil
}
