package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/floodwall/floodwall/internal/api/listen"
	"github.com/floodwall/floodwall/internal/boot"
	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/policy"
)

// saving is an apply's copy of the policy for the next boot. Once --boot was given, every apply saves one.
type saving struct {
	*env
	file   string
	text   []byte
	policy *policy.Policy
	units  boot.Units
	staged *boot.Staged // nil when nothing is saved
	flags  applyFlags
	late   error    // that there is no systemd: what can be done is done first
	notes  []string // for the operator
}

// saving reads the policy and, if it is to come back after a reboot, copies it. Nothing has an effect before keep.
func (e *env) saving(ctx context.Context, file string, f applyFlags) (s *saving, err error) {
	s = &saving{env: e, file: file, flags: f}
	if s.text, err = os.ReadFile(file); err != nil {
		return nil, fmt.Errorf("reading policy: %w", err)
	}
	if s.policy, err = policy.Parse(file, s.text); err != nil {
		return nil, err
	}
	store := boot.Open(e.state)
	if f.dryRun || !f.boot && !store.Enabled() {
		return s, nil
	}
	devices := f.devices
	if devices == nil {
		devices = s.policy.DeviceNames()
	}
	if s.units, err = e.units(devices); err != nil {
		return nil, err
	}
	if f.boot {
		var none *boot.NoSystemdError
		if err := s.units.Check(); errors.As(err, &none) {
			s.late = err
		} else if err != nil {
			return nil, err
		}
	}
	options := boot.Options{Target: f.target, Mode: f.mode, Devices: f.devices, BPFFS: s.units.BPFFS}
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

// ways are the operator's sessions, for the fail-safe of boot.
func ways() (list []boot.Way) {
	for _, s := range hostfacts.Sessions() {
		list = append(list, boot.Way{Client: s.Client.Addr(), Port: s.Server.Port()})
	}
	return list
}

// units describes the systemd units of this instance.
func (e *env) units(devices []string) (u boot.Units, err error) {
	u.Devices, u.Daemon, u.Legacy = devices, true, netfilter.LegacyIptables(context.Background())
	if listen.HasGroup() {
		u.Group = listen.Group
	}
	if u.Binary, err = os.Executable(); err != nil {
		return u, fmt.Errorf("finding this program: %w", err)
	}
	if u.State, err = filepath.Abs(e.state); err != nil {
		return u, err
	}
	u.BPFFS, err = filepath.Abs(e.bpffs)
	return u, err
}

// verify makes sure that the lists which the apply has read are those that were copied.
func (s *saving) verify() error {
	if s.staged == nil {
		return nil
	}
	return s.staged.Verify(context.Background())
}

// id names the copy.
func (s *saving) id() string {
	if s.staged == nil {
		return ""
	}
	return s.staged.ID()
}

// keep has the copy come back, or wait for the confirmation, now that the policy runs.
func (s *saving) keep(ctx context.Context) error {
	if s.staged == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	keep := s.staged.Commit
	if s.flags.trial > 0 {
		keep = s.staged.Hold
	}
	if err := keep(); err != nil {
		return fmt.Errorf("the policy is applied, but after a reboot the one before comes back: %w", err)
	}
	if !s.flags.boot {
		return s.units.Refresh(ctx)
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

func split(list []string, is func(string) bool) (yes, no []string) {
	for _, s := range list {
		if is(s) {
			yes = append(yes, s)
		} else {
			no = append(no, s)
		}
	}
	return yes, no
}

// remember has what runs now come back after a reboot, after it was confirmed or rolled back to.
func (e *env) remember(ctx context.Context, now control.Now) error {
	store := boot.Open(e.state)
	if !store.Enabled() && now.Boot == "" {
		return nil
	}
	err := store.Use(ctx, now.Boot)
	if errors.Is(err, boot.ErrGone) {
		e.warning("what runs now was not applied with --boot: after a reboot nothing is filtered until a policy is applied")
		return store.Remove(ctx)
	}
	if err != nil {
		return err
	}
	u, err := e.units(now.Devices)
	if err != nil {
		return err
	}
	return u.Refresh(ctx)
}

// forget has nothing come back after a reboot.
func (e *env) forget(ctx context.Context) error {
	u, err := e.units(nil)
	if err != nil {
		return err
	}
	return errors.Join(boot.Open(e.state).Remove(ctx), u.Remove(ctx))
}
