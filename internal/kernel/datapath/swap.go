// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// swap is a change of the devices' programs, with the data to undo it.
type swap struct {
	state *State
	code  *code // the programs of the new generation

	trial    *trialCode         // the programs that the devices run during a trial; nil without a trial
	previous *code              // the programs of the generation to which a trial returns; nil when there is none
	had      func(*Device) bool // whether the generation in previous had a device

	old      []*Device
	held     held      // the programs of the devices before the swap
	updated  []*Device // devices that had one of our programs before
	added    []*Device
	dropped  []*Device // devices in updated that the new generation does not have
	removals []removal
	moved    map[*Device]Mode // devices whose mode has changed, with their previous mode
}

// onTrial makes the swap a trial, with base as the generation to return to.
func (s *swap) onTrial(ends time.Time, base int) (err error) {
	if base != 0 {
		s.previous = s.state.code(base, nil)
	}
	if s.had, err = s.state.had(base); err != nil {
		return err
	}
	s.trial, err = s.state.newTrial(ends, s.code, s.previous)
	return err
}

// close closes the programs. The links keep them in the kernel.
func (s *swap) close() {
	s.code.close()
	if s.previous != nil {
		s.previous.close()
	}
	if s.trial != nil {
		s.trial.close()
	}
	s.held.close()
}

// run attaches the new program to the devices in to. During a trial, all other devices get a program that returns to the old generation.
func (s *swap) run(to []Attachment) error {
	if err := s.prepare(to); err != nil {
		return err
	}
	for _, a := range to {
		if err := s.device(a); err != nil {
			return err
		}
	}
	if s.trial == nil {
		return nil
	}
	for _, d := range s.old {
		if slices.Contains(s.updated, d) || !s.had(d) {
			continue
		}
		if err := s.update(d, false); err != nil {
			return err
		}
		s.dropped = append(s.dropped, d)
	}
	return nil
}

// prepare opens the present programs of the devices, so that they can be restored if the swap fails. It then loads the programs for other modes than
// native: that for tc always, so that the device can change its mode later, and others as far as the need for them is known. It does so before any
// device is changed, because verifying takes longer than any other part of an apply. A program that no device needs now may fail.
func (s *swap) prepare(to []Attachment) (err error) {
	if s.held, err = s.state.hold(s.old); err != nil {
		return err
	}
	s.moved = map[*Device]Mode{}
	for i, a := range to {
		dev, err := findDevice(a.Device)
		if err != nil {
			return err
		}
		mode, had := cmp.Or(a.Mode, Auto), false
		if d := find(s.old, dev); d != nil {
			had = s.trial != nil && s.had(d)
			if mode == Auto {
				mode = d.Mode
			}
		}
		if s.code.fresh != nil && (hasTCX() || a.Spare && mode != Generic) {
			// An error counts below, if a device needs the program now.
			if _, err := s.code.program(Instead()); err != nil && !hasTCX() { // the verifier of an old kernel
				_, _ = s.code.program(Generic)
			}
		}
		if mode == Auto && isBare(dev) {
			mode = TC
		}
		if mode == Native || mode == Auto {
			continue
		}
		if err := readsIn(dev, mode); err != nil {
			return err
		}
		if isBare(dev) {
			mode += bareSuffix
		}
		_, err = s.programFor(mode, true, had)
		if err != nil && a.Chosen && mode == TC {
			to[i].Mode = Generic
			_, err = s.programFor(Generic, true, had)
		}
		if errors.Is(err, os.ErrNotExist) {
			err = &AttachError{Device: a.Device, Cause: fmt.Sprintf("a trial in %s mode could not return to the policy before, whose program for that mode is not loaded", a.Mode),
				Remedy: "apply once without --confirm, or with --mode native"}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// find finds a device in a list by its index, because its name may have changed. It returns nil when the list does not have the device.
func find(devices []*Device, dev netlink.Link) *Device {
	i := slices.IndexFunc(devices, func(d *Device) bool { return d.ifindex == dev.Attrs().Index })
	if i < 0 {
		return nil
	}
	return devices[i]
}

// device attaches the new program to one device.
func (s *swap) device(a Attachment) error {
	dev, err := findDevice(a.Device)
	if err != nil {
		return err
	}
	if find(s.done(), dev) != nil {
		return nil // the policy names the device twice, once by an alternative name
	}
	d := find(s.old, dev)
	if d == nil {
		d, err := s.attach(dev, cmp.Or(a.Mode, Auto))
		if err != nil {
			return err
		}
		s.added = append(s.added, d)
		return nil
	}
	switch a.Mode {
	case Keep, d.Mode:
	case Auto:
		err = s.improve(d, dev)
	default:
		if err = readsIn(dev, a.Mode); err == nil {
			err = s.move(d, dev, a.Mode)
		}
	}
	if err != nil {
		return err
	}
	return s.update(d, true)
}

// update changes the program of a device that already has one. `has` says whether the new generation has the device.
func (s *swap) update(d *Device, has bool) error {
	had := s.trial != nil && s.had(d)
	prog, err := s.programFor(d.place(d.Mode), has, had)
	if err != nil {
		return err
	}
	s.updated = append(s.updated, d)
	if err := s.updateSides(d, has, had); err != nil {
		return err
	}
	if err := d.link.Update(prog); err != nil {
		return fmt.Errorf("updating device %s: %w", d.Name, err)
	}
	return nil
}

// programFor returns the program for a device in a mode. `has` and `had` say whether the new and the old generation have the device.
func (s *swap) programFor(mode Mode, has, had bool) (*ebpf.Program, error) {
	if s.trial != nil {
		return s.trial.program(variant{mode, has, had})
	}
	return s.code.program(mode)
}

// undo restores the programs that the devices had when the swap started.
func (s *swap) undo() error {
	var errs []error
	for _, d := range s.added {
		errs = append(errs, s.state.detach(d))
	}
	for _, d := range s.updated {
		if _, moved := s.moved[d]; !moved { // else the link has another type: below
			errs = append(errs, s.restore(d))
		}
		errs = append(errs, s.restoreSide(d, leaving), s.restoreSide(d, entering))
	}
	for d, mode := range s.moved {
		dev, err := netlink.LinkByIndex(d.ifindex)
		if err == nil {
			err = s.state.changeMode(d, dev, mode, s.held[d.program], s.held)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// restore restores the XDP program that a device had when the swap started.
func (s *swap) restore(d *Device) error {
	prog, err := s.held.program(d.program)
	if err == nil {
		err = d.link.Update(prog)
	}
	if err != nil {
		return fmt.Errorf("restoring device %s: %w", d.Name, err)
	}
	return nil
}

// done lists the devices whose program has changed so far.
func (s *swap) done() []*Device { return append(slices.Clone(s.updated), s.added...) }

// finish does the remaining steps when all devices have their program.
func (s *swap) finish() error {
	err := errors.Join(s.detachOthers(), s.state.nameLinks(s.done()), s.removePrograms())
	if s.trial != nil {
		err = errors.Join(err, s.trial.complete())
	}
	return err
}

// detachOthers releases devices that the policy no longer names.
func (s *swap) detachOthers() (err error) {
	for _, d := range s.old {
		if !slices.Contains(s.updated, d) {
			err = errors.Join(err, s.state.release(d))
		}
	}
	return err
}

// now returns the devices that the new generation has after the swap. It closes their links, which stay pinned.
func (s *swap) now() []*Device {
	closeDevices(s.added)
	devices := slices.DeleteFunc(s.done(), func(d *Device) bool { return slices.Contains(s.dropped, d) })
	for _, d := range devices {
		d.Generation = s.code.number
	}
	return devices
}

// detach removes a device's link and pin.
func (s *State) detach(d *Device) error { return errors.Join(s.release(d), d.link.Close()) }

// release detaches a device and removes the pins of its links. Removing only the pins would also detach the device, but later: the kernel frees
// inodes of the BPF file system after an RCU grace period. Until then the next apply would find an unknown program.
func (s *State) release(d *Device) error {
	return errors.Join(d.link.Detach(), os.Remove(s.path(dirLinks, d.pin)), s.releaseSides(d))
}
