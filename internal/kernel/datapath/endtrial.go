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

// RestartTrial gives the trial another deadline, for an apply that is still at work, even if it has ended already. It returns ErrNoTrial when there is none. The caller holds the lock.
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

// Confirm ends the trial: its generation stays. It returns ErrNoTrial, ErrExpired or ErrUnfinished when there is
// nothing to confirm. All devices keep it from the same moment on; if the process dies after that, the next change
// completes the rest. The caller holds the lock.
func (s *State) Confirm() error {
	v, err := s.situation()
	if err != nil {
		return err
	}
	defer v.close()
	switch {
	case v.trial == nil:
		return ErrNoTrial
	case v.trial.Deadline == confirmed: // by a command that died
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

// keepNew gives the devices of a confirmed trial the new generation's own program.
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

// put gives a device the program of a generation that has it, and releases it from one that has not.
func (s *State) put(d *Device, from *code, has bool) error {
	if !has {
		return s.release(d)
	}
	var ends []Mode
	for _, side := range sides {
		beside, err := from.program(side)
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
	prog, err := from.program(d.Mode)
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

// FinishTrial completes a trial that has expired, or that a command ended that died: devices get the program of the
// generation in force, and the other generation is removed. It leaves a trial that is not over alone. Every change
// calls it first, except Confirm and Rollback, which must see that the trial expired: Confirm to report it, Rollback so
// as not to go back by two generations. The caller holds the lock.
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

// Rollback returns to the previous generation. The caller holds the lock.
//
// During a trial, and after an expired one, that is the generation from before the trial; the one on trial is removed.
// Devices that only the latter had are released, and nothing is loaded if there was no generation before. After an
// Install that died half way it is the generation from before that Install. Otherwise it is the generation that is
// kept, with the devices it had; the two exchange their roles, so a second Rollback returns. It returns ErrNoPrevious
// if there is no previous generation, and ErrNotLoaded if nothing runs. If a device refuses, all keep their programs,
// and the error is returned.
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

// revert gives all devices the generation to return to. Trials end at once, on all devices.
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
