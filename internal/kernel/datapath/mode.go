// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// changeMode changes the mode in which a device runs a program, or attaches the program anew if it is the present mode. `held` has the present program,
// which is restored if the new mode fails.
//
// Between XDP and tc, the device first gets the new program and then loses the old one: for that moment both decide. The kernel does not run two modes
// of XDP on one device (dev_xdp_attach in net/core/dev.c), nor a program twice at one hook of tc, so for less than a millisecond the device has no program. During that time a program after
// XDP drops all packets that enter. Its link is not pinned, so it ends with this process. If the process dies during that time, the device has no
// program. Lacking reports that, and Reattach repairs it.
func (s *State) changeMode(d *Device, dev netlink.Link, mode Mode, prog *ebpf.Program, held held) error {
	now, err := held.program(d.program)
	if err != nil {
		return err
	}
	if (d.Mode == TC) != (mode == TC) {
		before := d.link
		if err := s.runIn(d, dev, mode, prog); err != nil {
			return err
		}
		return errors.Join(before.Detach(), before.Close())
	}
	if !hasTCX() {
		return &AttachError{Device: d.Name, Cause: fmt.Sprintf("it runs in %s mode, not %s", d.Mode, mode),
			Remedy: "this kernel, before Linux 6.6, cannot change the mode without a moment that nothing filters: `floodwall apply --mode tc` first"}
	}
	shut, err := dropAll(d.ifindex)
	if err != nil {
		return err
	}
	defer shut.Close()
	before, beforeMode := d.link, d.Mode
	if err := before.Detach(); err != nil {
		return fmt.Errorf("changing the mode of device %s: %w", d.Name, err)
	}
	err = s.runIn(d, dev, mode, prog)
	if err != nil {
		err = errors.Join(err, s.runIn(d, dev, beforeMode, now))
	}
	return errors.Join(err, before.Close())
}

// runIn attaches a program to a device in a mode. It replaces the pin of the device's link by a pin of the new link. The caller closes the old link.
func (s *State) runIn(d *Device, dev netlink.Link, mode Mode, prog *ebpf.Program) error {
	l, err := attachProgram(d.ifindex, mode, prog)
	if err != nil {
		return explainAttach(dev, err)
	}
	pin := s.path(dirLinks, d.pin)
	passing := s.path(dirLinks, passingName(d.ifindex)+newSuffix)
	err = removeUnused(passing)
	if err == nil {
		err = l.Pin(passing)
	}
	if err == nil {
		err = os.Rename(passing, pin) // the old link keeps its pin until then
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pinning the link of device %s: %w", d.Name, err), l.Detach(), l.Close(), removeUnused(passing))
	}
	d.link, d.Mode = l, mode
	return nil
}

// shutProgram is the name of a program that drops all packets while another one changes.
const shutProgram = "floodwall_shut"

// dropAll drops all packets that enter a device, after XDP, until the returned link is closed.
func dropAll(ifindex int) (link.Link, error) { return dropAllAt(ifindex, ebpf.AttachTCXIngress) }

// dropAllAt drops all packets at a hook of tc.
func dropAllAt(ifindex int, hook ebpf.AttachType) (link.Link, error) {
	const shot = 2 // TC_ACT_SHOT of include/uapi/linux/pkt_cls.h
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: shutProgram, Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, shot), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("program for the moment between two modes: %w", err)
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: hook, Anchor: link.Head()})
	if err != nil {
		return nil, fmt.Errorf("program for the moment between two modes: %w", err)
	}
	return l, nil
}

// LeaveNative switches the named devices from native mode to the mode Instead, if they run the generation in native mode. If the generation has no
// program for that mode, they get generic mode. Each device is changed independently: the error names the devices whose change failed. During a trial
// LeaveNative does nothing. The caller must hold the lock.
func (s *State) LeaveNative(names []string, number int) (changed []*Device, err error) {
	changed, refused, err := s.switchMode(names, number, Native, Instead(), Generic)
	for _, r := range refused {
		err = errors.Join(err, r)
	}
	return changed, err
}

// TakeTC switches the named devices from native mode to tc. A device that refuses tc stays in native mode, without an error. Otherwise TakeTC is like
// LeaveNative.
func (s *State) TakeTC(names []string, number int) (changed []*Device, refused []*AttachError, err error) {
	return s.switchMode(names, number, Native, TC)
}

// TakeNative switches the named devices from tc to native mode, if they run the generation at tc. A device whose driver refuses native mode stays at
// tc, without an error. Otherwise TakeNative is like LeaveNative.
func (s *State) TakeNative(names []string, number int) (changed []*Device, refused []*AttachError, err error) {
	return s.switchMode(names, number, TC, Native)
}

// switchMode switches the named devices from one mode to the first mode in `to` for which the generation has a program.
func (s *State) switchMode(names []string, number int, from Mode, to ...Mode) (changed []*Device, refused []*AttachError, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	v, err := s.situation()
	if err != nil {
		return nil, nil, err
	}
	defer v.close()
	if v.trial != nil {
		return nil, nil, nil
	}
	own := s.code(number, nil)
	defer own.close()
	var mode Mode
	var prog *ebpf.Program
	for _, mode = range to {
		if prog, err = own.program(mode); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	failed := func(oneErr error) {
		if no := (*AttachError)(nil); errors.As(oneErr, &no) {
			refused = append(refused, no)
		} else {
			err = errors.Join(err, oneErr)
		}
	}
	var devices []*Device
	links := map[*Device]netlink.Link{}
	for _, name := range names {
		dev, findErr := findDevice(name)
		if findErr != nil {
			failed(findErr)
		} else if d := find(v.devices, dev); d != nil && d.Mode == from && links[d] == nil {
			devices, links[d] = append(devices, d), dev
		}
	}
	if len(devices) == 0 {
		return nil, refused, err
	}
	change, end, startErr := s.changer(v.devices, devices, own, mode, prog)
	if startErr != nil {
		return nil, refused, errors.Join(err, startErr)
	}
	for _, d := range devices {
		dev := links[d]
		if changeErr := d.measured(dev, func() error { return change(d, dev) }); changeErr != nil {
			failed(changeErr)
			continue
		}
		changed = append(changed, d)
	}
	return changed, refused, errors.Join(err, end())
}

// changer prepares a change of devices to a mode. The function change does it for one device, and end completes it for all.
func (s *State) changer(all, devices []*Device, own *code, mode Mode, prog *ebpf.Program) (change func(*Device, netlink.Link) error, end func() error, err error) {
	if mode != Generic && hasTC() {
		if err := s.mendHandover(all, own); err != nil {
			return nil, nil, err
		}
		if h, err := s.newHandover(own); err == nil {
			change, end = s.handOver(h, devices, own, mode)
			return change, end, nil
		}
	}
	held, err := s.hold(all) // both programs decide for a moment
	if err != nil {
		return nil, nil, err
	}
	return func(d *Device, dev netlink.Link) error { return s.changeMode(d, dev, mode, prog, held) }, func() error { held.close(); return nil }, nil
}

// MayTakeNative reports whether native mode may be possible on a device: its packets have an Ethernet header, and its driver does not stop running XDP
// by itself. Only attaching the program shows whether the driver takes it.
func (d *Device) MayTakeNative() bool { return !d.bare && !Forgetful(d.Name) }

// Beside describes the XDP program of another tool on a device whose program runs at tc. It returns "" if there is none.
func (d *Device) Beside() string {
	if d.Mode != TC {
		return ""
	}
	dev, err := netlink.LinkByIndex(d.ifindex)
	if err != nil {
		return ""
	}
	if o := findForeign(dev); o.program != 0 {
		return o.cause()
	}
	return ""
}

// improve moves a device with mode Auto to a better mode, if the device takes one now: from generic mode to tc, and from tc to native mode.
func (s *swap) improve(d *Device, dev netlink.Link) error {
	if !hasTC() {
		return nil
	}
	if d.Mode == Generic {
		if _, err := s.programFor(d.place(TC), true, s.trial != nil && s.had(d)); err != nil {
			return nil // the trial's previous generation has no such program, or the verifier refuses this one: the device stays as it is
		}
		if err := s.move(d, dev, TC); err != nil {
			return err
		}
	}
	if d.Mode != TC || !d.MayTakeNative() {
		return nil
	}
	err := s.move(d, dev, Native)
	if errors.As(err, &d.NotNative) {
		return nil
	}
	return err
}

// move moves a device that has one of our programs to another mode.
func (s *swap) move(d *Device, dev netlink.Link, mode Mode) error {
	before, had := d.Mode, s.trial != nil && s.had(d)
	prog, err := s.programFor(d.place(mode), true, had)
	if err == nil {
		err = d.measured(dev, func() error { return s.state.changeMode(d, dev, mode, prog, s.held) })
	}
	if err != nil {
		return err
	}
	if _, again := s.moved[d]; !again {
		s.moved[d] = before
	}
	return nil
}
