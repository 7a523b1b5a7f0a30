// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"time"
)

// Errors of Confirm and Rollback.
var (
	ErrNoTrial    = errors.New("no policy is on trial")
	ErrExpired    = errors.New("the trial has expired: the previous policy is in force again")
	ErrUnfinished = errors.New("the apply was interrupted: its trial cannot be confirmed")
	ErrNoPrevious = errors.New("there is no previous policy to return to")
)

// RestartTrial sets a new deadline for the trial, for an apply that is still running. The present deadline may have passed already. RestartTrial
// returns ErrNoTrial when there is no trial. The caller must hold the lock.
func (s *State) RestartTrial(ends time.Time) error {
	t, err := s.Trial()
	if err != nil {
		return err
	}
	if t == nil {
		return ErrNoTrial
	}
	return s.setDeadline(t.New, onClock(ends))
}

// Confirm ends the trial so that its generation stays. It returns ErrNoTrial, ErrExpired or ErrUnfinished when there is nothing to confirm. The
// confirmation takes effect on all devices at the same moment. If the process dies after that, the next change completes the rest. The caller must
// hold the lock.
func (s *State) Confirm() error {
	v, err := s.situation()
	if err != nil {
		return err
	}
	defer v.close()
	switch {
	case v.trial == nil:
		return ErrNoTrial
	case v.trial.Deadline == confirmed: // a command that died has confirmed it
	case v.trial.Expired():
		return ErrExpired
	case !v.trial.whole:
		return ErrUnfinished
	default:
		if err := s.setDeadline(v.trial.New, confirmed); err != nil {
			return err
		}
	}
	return s.keepNew(v)
}

// keepNew attaches the new generation's own program to the devices of a confirmed trial.
func (s *State) keepNew(v *situation) error {
	own := s.code(v.trial.New, nil)
	defer own.close()
	var errs []error
	for _, d := range v.devices {
		errs = append(errs, s.put(d, own, v.roles[d.program].during != 0))
	}
	keep := []int{v.trial.New, v.trial.Old}
	if s.has(v.trial.New, pinReplaces) {
		before, err := s.before(v.trial.Old)
		keep, errs = append(keep, before), append(errs, err)
	}
	return errors.Join(append(errs, s.sweep(keep...))...)
}

// put attaches the program of a generation to a device. If `has` is false, the generation does not have the device, and put releases it.
func (s *State) put(d *Device, from *code, has bool) error {
	if !has {
		return s.release(d)
	}
	var ends []Mode
	for _, side := range sides {
		beside, err := from.program(d.place(side))
		switch {
		case err != nil:
			return err
		case beside == nil:
			ends = append(ends, side)
			continue
		}
		if err := s.setSide(d, side, beside); err != nil {
			return err
		}
	}
	prog, err := from.program(d.place(d.Mode))
	if err != nil {
		return err
	}
	if err := d.link.Update(prog); err != nil {
		return fmt.Errorf("updating device %s: %w", d.Name, err)
	}
	for _, side := range ends {
		err = errors.Join(err, s.releaseSide(d, side))
	}
	return err
}

// FinishTrial completes a trial that has expired, or that a command has ended before it died. It attaches the program of the generation in force to
// the devices, and removes the other generation. It does not change a trial that has not ended. Every change calls FinishTrial first, except Confirm
// and Rollback, which must see that the trial has expired: Confirm reports it, and Rollback would otherwise go back by two generations. The caller
// must hold the lock.
func (s *State) FinishTrial() error {
	v, err := s.situation()
	if err != nil {
		return err
	}
	defer v.close()
	switch {
	case v.trial == nil:
		return nil
	case v.trial.Deadline == confirmed:
		return s.keepNew(v)
	case v.trial.Expired():
		return s.revert(v)
	}
	return nil
}

// Rollback returns to the previous generation. The caller must hold the lock.
//
// During a trial, and after an expired one, the previous generation is the one from before the trial. Rollback then removes the generation on trial,
// and releases devices that only this one had. If there was no generation before the trial, nothing is loaded afterwards. After an Install that died
// half way, the previous generation is the one from before that Install. In all other cases it is the generation that is kept, with its devices. The
// two generations then exchange their roles, so a second Rollback undoes the first.
//
// Rollback returns ErrNoPrevious if there is no previous generation, and ErrNotLoaded if nothing runs. If a change of one device fails, all devices
// keep their programs, and Rollback returns the error.
func (s *State) Rollback() error {
	v, err := s.situation()
	if err != nil {
		return err
	}
	defer v.close()
	if v.trial != nil && v.trial.Deadline == confirmed {
		if err := s.keepNew(v); err != nil {
			return err
		}
		return s.Rollback()
	}
	if v.mixed {
		return s.revert(v)
	}
	return s.exchange(v)
}

// revert attaches the previous generation to all devices. Trials end at once, on all devices.
func (s *State) revert(v *situation) error {
	var errs []error
	for _, r := range v.roles {
		if r.trial != nil {
			errs = append(errs, s.setDeadline(r.trial.New, rolledBack))
		}
	}
	had, err := s.had(v.base)
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	own := s.code(v.base, nil)
	defer own.close()
	errs = nil
	for _, d := range v.devices {
		errs = append(errs, s.put(d, own, had(d)))
	}
	before, err := s.before(v.base)
	return errors.Join(append(errs, err, s.sweep(v.base, before))...)
}
