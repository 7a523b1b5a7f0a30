package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
)

// swap is a change of programs in progress, with what it takes to undo it.
type swap struct {
	state   *State
	program *Program
	number  int // of the generation that the program is
	old     []*Device
	updated []*Device // had a program of ours before
	added   []*Device
}

// device gives one device the new program.
func (s *swap) device(a Attachment) error {
	dev, err := findDevice(a.Device)
	if err != nil {
		return err
	}
	same := func(d *Device) bool { return d.ifindex == dev.Attrs().Index }
	if slices.ContainsFunc(s.done(), same) {
		return nil // it is named twice, once by another of its names
	}
	i := slices.IndexFunc(s.old, same)
	if i < 0 {
		d, err := s.attach(dev, a.Mode)
		if err == nil {
			s.added = append(s.added, d)
		}
		return err
	}
	d := s.old[i]
	if a.Mode != Auto && a.Mode != d.Mode {
		return &AttachError{Device: d.Name, Cause: fmt.Sprintf("it runs in %s mode, not %s", d.Mode, a.Mode),
			Remedy: "the kernel cannot change the mode without a moment that nothing filters: `floodwall unload` first, if you can bear that"}
	}
	prog, err := s.programFor(d.Mode)
	if err != nil {
		return err
	}
	if err := d.link.Update(prog); err != nil {
		return fmt.Errorf("updating device %s: %w", d.Name, err)
	}
	s.updated = append(s.updated, d)
	return nil
}

// undo gives the devices back what they had.
func (s *swap) undo() error {
	var errs []error
	for _, d := range s.added {
		errs = append(errs, s.state.detach(d))
	}
	for _, d := range s.updated {
		errs = append(errs, restore(d))
	}
	return errors.Join(errs...)
}

// restore gives a device the program back that it had when the swap began.
func restore(d *Device) error {
	prog, err := ebpf.NewProgramFromID(d.program)
	if err != nil {
		return fmt.Errorf("restoring device %s: %w", d.Name, err)
	}
	defer prog.Close()
	if err := d.link.Update(prog); err != nil {
		return fmt.Errorf("restoring device %s: %w", d.Name, err)
	}
	return nil
}

// done lists the devices that have the new program.
func (s *swap) done() []*Device { return append(slices.Clone(s.updated), s.added...) }

// detachOthers releases devices that the policy no longer names.
func (s *swap) detachOthers() (err error) {
	for _, d := range s.old {
		if !slices.Contains(s.updated, d) {
			err = errors.Join(err, s.state.release(d))
		}
	}
	return err
}

// now lists the devices as they are after the swap, and closes their links: the pins hold them.
func (s *swap) now() []*Device {
	closeDevices(s.added)
	devices := s.done()
	for _, d := range devices {
		d.Generation = s.number
	}
	return devices
}

// detach removes a device's link and pin.
func (s *State) detach(d *Device) error { return errors.Join(s.release(d), d.link.Close()) }

// release detaches a device and removes the pin of its link. Removal alone would detach it too, but some time later:
// the kernel ends inodes of the BPF file system after an RCU grace period, and the next apply would meet a stranger.
func (s *State) release(d *Device) error {
	return errors.Join(d.link.Detach(), os.Remove(s.path(dirLinks, d.pin)))
}
