// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/policy"
)

// saving is the copy of a policy that Apply makes for the next boot. After one apply with --boot, every apply makes a copy.
type saving struct {
	host   Host
	text   []byte
	policy *policy.Policy
	units  boot.Units
	staged *boot.Staged // nil when no copy is made
	order  Order
	late   error    // the error that systemd is missing; it is returned after all other steps
	notes  []string // notes for the operator
	trial  time.Duration
	kept   datapath.Mode // the mode that an earlier apply asked for; "" if this one asks for a mode
}

// saving reads the policy. If the policy should return after a reboot, saving makes a copy. The copy has no effect before keep is called.
func (h Host) saving(ctx context.Context, o Order) (s *saving, err error) {
	s = &saving{host: h, order: o, text: o.Text}
	if s.text == nil {
		if s.text, err = os.ReadFile(o.Policy); err != nil {
			return nil, fmt.Errorf("reading policy: %w", err)
		}
	}
	if s.policy, err = policy.Parse(o.Policy, s.text); err != nil {
		return nil, err
	}
	if o.Mode == "" {
		if s.kept, err = generation.AskedMode(ctx, h.Dir); err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
			return nil, err
		}
	}
	store := boot.Open(h.State)
	if o.DryRun || !o.Boot && !store.Enabled() {
		return s, nil
	}
	devices := o.Devices
	if devices == nil {
		devices = s.policy.DeviceNames()
	}
	if s.units, err = h.units(devices); err != nil {
		return nil, err
	}
	if o.Boot {
		var none *boot.NoSystemdError
		if err := s.units.Check(); errors.As(err, &none) {
			s.late = err
		} else if err != nil {
			return nil, err
		}
	}
	options := boot.Options{Target: o.Target, Mode: o.Mode, Kept: string(s.kept), Devices: o.Devices, BPFFS: s.units.BPFFS}
	failsafe, note, err := boot.NewFailsafe(s.policy, devices, ways())
	if err != nil {
		return nil, err
	}
	if note != "" {
		s.notes = append(s.notes, note)
	}
	s.staged, err = store.Stage(ctx, boot.Source{Policy: s.policy, Text: s.text, Options: options, Failsafe: failsafe})
	return s, err
}

// ways returns the operator's sessions. The fail-safe at boot passes their packets.
func ways() (list []boot.Way) {
	for _, s := range facts.Sessions() {
		list = append(list, boot.Way{Client: s.Client.Addr(), Port: s.Server.Port()})
	}
	return list
}

// Group is the name of the group whose members may read from the daemon.
const Group = "floodwall"

// units returns a description of this instance's systemd units.
func (h Host) units(devices []string) (u boot.Units, err error) {
	u.Devices, u.Daemon, u.Legacy = devices, true, netfilter.LegacyIptables(context.Background())
	if _, err := user.LookupGroup(Group); err == nil {
		u.Group = Group
	}
	if u.Binary, err = os.Executable(); err != nil {
		return u, fmt.Errorf("finding this program: %w", err)
	}
	if u.State, err = filepath.Abs(h.State); err != nil {
		return u, err
	}
	u.BPFFS, err = filepath.Abs(h.Dir)
	return u, err
}

// verify returns an error when the lists that Apply has read differ from the lists in the copy.
func (s *saving) verify() error {
	if s.staged == nil {
		return nil
	}
	return s.staged.Verify(context.Background())
}

// id returns the ID of the copy, "" without a copy.
func (s *saving) id() string {
	if s.staged == nil {
		return ""
	}
	return s.staged.ID()
}

// keep is called when the policy runs. It makes the copy take effect at the next boot. During a trial it waits for the confirmation.
func (s *saving) keep(ctx context.Context) error {
	if s.staged == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	keep := s.staged.Commit
	if s.trial > 0 {
		keep = s.staged.Hold
	}
	if err := keep(); err != nil {
		return fmt.Errorf("the policy is applied, but after a reboot the one before comes back: %w", err)
	}
	if !s.order.Boot {
		return s.units.Refresh(ctx)
	}
	if s.order.Later {
		return nil
	}
	if s.late != nil {
		return s.late
	}
	notes, err := s.units.Install(ctx)
	s.notes = append(s.notes, notes...)
	return err
}

func (s *saving) discard() {
	if s.staged != nil {
		s.staged.Discard()
	}
}

// remember makes the running policy the policy for the next boot, after a confirmation or a rollback.
func (h Host) remember(ctx context.Context, now control.Now) error {
	store := boot.Open(h.State)
	if !store.Enabled() && now.Boot == "" {
		return nil
	}
	err := store.Use(ctx, now.Boot)
	if errors.Is(err, boot.ErrGone) {
		h.Warn(errors.New("what runs now was not applied with --boot: after a reboot nothing is filtered until a policy is applied"))
		return store.Remove(ctx)
	}
	if err != nil {
		return err
	}
	u, err := h.units(now.Devices)
	if err != nil {
		return err
	}
	return u.Refresh(ctx)
}

// CanEnable returns the error that Enable would return before any change.
func (h Host) CanEnable(devices []string) error {
	u, err := h.units(devices)
	if err != nil {
		return err
	}
	return u.Check()
}

// Enable has systemd load the saved policy after each reboot, and run the daemon. It starts the daemon, unless one runs. Without systemd the error is
// a *boot.NoSystemdError.
func (h Host) Enable(ctx context.Context, devices []string) (notes []string, err error) {
	u, err := h.units(devices)
	if err != nil {
		return nil, err
	}
	if notes, err = u.Install(ctx); err != nil || h.HasDaemon() {
		return notes, err
	}
	return notes, u.StartDaemon(ctx)
}

// Forget removes the policy for the next boot.
func (h Host) Forget(ctx context.Context) error {
	u, err := h.units(nil)
	if err != nil {
		return err
	}
	return errors.Join(boot.Open(h.State).Remove(ctx), u.Remove(ctx))
}
