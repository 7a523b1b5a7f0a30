package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Order says which policy to apply, and how.
type Order struct {
	Policy  string   `json:"policy"`            // path of the file on this host
	Target  string   `json:"target,omitempty"`  // auto when not said
	Mode    string   `json:"mode,omitempty"`    // of XDP: auto, native, generic; auto when not said
	Devices []string `json:"devices,omitempty"` // in place of the policy's
	Confirm string   `json:"confirm,omitempty"` // the time after which the previous policy returns unless confirmed, as 60s
	DryRun  bool     `json:"dry_run,omitempty"` // do all but attach
	Force   bool     `json:"force,omitempty"`   // apply even what would cut the session of who asks
	Text    []byte   `json:"-"`                 // the policy itself, when it is not read from the file; Policy is its name then
	Boot    bool     `json:"-"`                 // have systemd apply it after each reboot

	Sessions []facts.Session `json:"-"` // of who asks, not to be cut
}

// AsRunning has the order apply to the target and the devices that a policy runs on, and in generic mode where that is the mode of XDP on
// all of them.
func (o *Order) AsRunning(s *control.Status) {
	o.Target, o.Devices = string(s.Target), deviceNames(s)
	inMode := func(mode datapath.Mode) bool {
		return slices.ContainsFunc(s.Devices, func(d control.DeviceStatus) bool { return d.Mode == string(mode) })
	}
	if inMode(datapath.Generic) && !inMode(datapath.Native) {
		o.Mode = string(datapath.Generic)
	}
}

// ShortestTrial and longestTrial are the bounds of a trial. A shorter one could not be confirmed by hand, and a longer one is as good as none.
const (
	ShortestTrial = 2 * time.Second
	longestTrial  = 24 * time.Hour
)

// OrderError says that an order cannot be understood.
type OrderError struct{ Problem, Remedy string }

func (e *OrderError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *OrderError) Hint() string { return e.Remedy }

// Trial is the time that Confirm says, 0 when it says none.
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

// Apply makes a policy the one that runs, and saves it for the next boot where that was asked for before. With an error and a
// result, the policy is applied, but not all that follows from it is done.
func (h Host) Apply(ctx context.Context, o Order) (*control.Applied, *policy.Policy, error) {
	start := time.Now()
	trial, err := o.Trial()
	if err != nil {
		return nil, nil, err
	}
	if err := statedir.Check(h.Dir, h.State); err != nil { // also under the lock, but copies and lists come before that
		return nil, nil, err
	}
	s, err := h.saving(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	defer s.discard()
	s.trial = trial
	options := control.ApplyOptions{
		Target: plan.Target(o.Target), Devices: o.Devices, Mode: datapath.Mode(o.Mode), DryRun: o.DryRun, Confirm: trial,
		Boot: s.id(), Costs: h.Costs(), Fetch: h.Instance.Fetcher(), Read: s.verify,
	}
	if !o.Force {
		options.Sessions = o.Sessions
	}
	before := h.temporaryNow(ctx)
	applied, err := h.Instance.Apply(ctx, s.policy, options)
	if err != nil {
		return nil, nil, err
	}
	if !o.DryRun && applied.Target != plan.TargetXDP { // whose program has them already
		h.keepTemporary(context.WithoutCancel(ctx), before)
	}
	saved := s.keep(ctx)
	applied.Seconds = time.Since(start).Seconds()
	if !o.DryRun {
		saved = cmp.Or(saved, h.OpenLate(context.WithoutCancel(ctx), nil)) // the policy is in force: an interrupt comes too late
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

// Rollback returns to the policy before, also for the next boot.
func (h Host) Rollback(ctx context.Context) (control.Now, error) {
	before := h.temporaryNow(ctx)
	now, err := h.Instance.Rollback(ctx)
	if err == nil {
		h.keepTemporary(context.WithoutCancel(ctx), before)   // the policy before has those of its time
		if _, stale := h.SyncLists(ctx, true); stale != nil { // its lists are as they were when it ran last, which is better than none
			h.Warn(stale)
		}
		err = h.rememberOr(ctx, now)
	}
	return now, err
}

// SavedError says that something was done, but will be forgotten at the next boot.
type SavedError struct{ Err error }

func (e *SavedError) Error() string { return e.Err.Error() }

// Unwrap is the error alone.
func (e *SavedError) Unwrap() error { return e.Err }

func (h Host) rememberOr(ctx context.Context, now control.Now) error {
	if err := h.remember(ctx, now); err != nil {
		return &SavedError{err}
	}
	return nil
}
