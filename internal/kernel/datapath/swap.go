package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// swap is a change of programs in progress, with what it takes to undo it.
type swap struct {
	state *State
	code  *code // of the generation that devices get

	trial    *trialCode         // what they run instead, nil without a trial
	previous *code              // of the generation that a trial returns to, nil when there is none
	had      func(*Device) bool // whether that one had a device

	old      []*Device
	held     held      // what they had
	updated  []*Device // had a program of ours before
	added    []*Device
	dropped  []*Device // those of updated that the new generation does not have
	removals []removal
	moved    map[*Device]Mode // that run in another mode now, with the one before
}

// onTrial puts the swap on trial, with the generation to return to.
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

// close gives up the programs. The links hold them.
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

// run gives these devices the new program, and during a trial all others one that returns to the old one.
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

// prepare opens what the devices have, to be given back if the swap fails. Then it loads what devices in generic mode take,
// as far as it is known which do, before any device is changed: verifying takes longest of all that an apply does.
func (s *swap) prepare(to []Attachment) (err error) {
	if s.held, err = s.state.hold(s.old); err != nil {
		return err
	}
	s.moved = map[*Device]Mode{}
	for _, a := range to {
		dev, err := findDevice(a.Device)
		if err != nil {
			return err
		}
		mode, had := a.Mode, false
		if d := find(s.old, dev); d != nil {
			had = s.trial != nil && s.had(d)
			if mode == Auto {
				mode = d.Mode
			}
		}
		if a.Spare && mode != Generic && s.code.fresh != nil {
			if _, err := s.code.program(Generic); err != nil {
				return err
			}
		}
		if mode != Generic {
			continue
		}
		if _, err := s.programFor(mode, true, had); err != nil {
			return err
		}
	}
	return nil
}

// find finds a device in a list, whatever its name was. It returns nil when it is not there.
func find(devices []*Device, dev netlink.Link) *Device {
	i := slices.IndexFunc(devices, func(d *Device) bool { return d.ifindex == dev.Attrs().Index })
	if i < 0 {
		return nil
	}
	return devices[i]
}

// device gives one device the new program.
func (s *swap) device(a Attachment) error {
	dev, err := findDevice(a.Device)
	if err != nil {
		return err
	}
	if find(s.done(), dev) != nil {
		return nil // it is named twice, once by another of its names
	}
	d := find(s.old, dev)
	if d == nil {
		d, err := s.attach(dev, a.Mode)
		if err != nil {
			return err
		}
		s.added = append(s.added, d)
		return nil
	}
	if a.Mode != Auto && a.Mode != d.Mode {
		before, had := d.Mode, s.trial != nil && s.had(d)
		prog, err := s.programFor(a.Mode, true, had)
		if err == nil {
			err = s.state.changeMode(d, dev, a.Mode, prog, s.held)
		}
		if err != nil {
			return err
		}
		s.moved[d] = before
	}
	return s.update(d, true)
}

// update changes the program of a device that has one. has is whether the new generation has the device.
func (s *swap) update(d *Device, has bool) error {
	had := s.trial != nil && s.had(d)
	prog, err := s.programFor(d.Mode, has, had)
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

// programFor is the program for a device of a mode that the new and the old generation have, or have not.
func (s *swap) programFor(mode Mode, has, had bool) (*ebpf.Program, error) {
	if s.trial != nil {
		return s.trial.program(variant{mode, has, had})
	}
	return s.code.program(mode)
}

// undo gives the devices back what they had.
func (s *swap) undo() error {
	var errs []error
	for _, d := range s.added {
		errs = append(errs, s.state.detach(d))
	}
	for _, d := range s.updated {
		errs = append(errs, s.restore(d), s.restoreSide(d, leaving), s.restoreSide(d, entering))
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

// restore gives a device the program back that it had when the swap began.
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

// done lists the devices that have another program than before.
func (s *swap) done() []*Device { return append(slices.Clone(s.updated), s.added...) }

// finish does what is left when all devices have their program.
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

// now lists the devices that the new generation has after the swap, and closes their links: the pins hold them.
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

// release detaches a device and removes the pins of its links. Removal alone would detach it too, but some time later:
// the kernel ends inodes of the BPF file system after an RCU grace period, and the next apply would meet a stranger.
func (s *State) release(d *Device) error {
	return errors.Join(d.link.Detach(), os.Remove(s.path(dirLinks, d.pin)), s.releaseSides(d))
}
