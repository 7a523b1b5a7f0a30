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

// changeMode changes the mode in which a device runs a program. `held` has the present program, which is restored if the new mode fails.
//
// Between XDP and tc, the device first gets the new program and then loses the old one: for that moment both decide. The kernel does not run two modes
// of XDP on one device (dev_xdp_attach in net/core/dev.c), so for less than a millisecond the device has no program. During that time a program after
// XDP drops all packets that enter. Its link is not pinned, so it ends with this process. If the process dies during that time, the device has no
// program. Lacking reports that, and Reattach repairs it.
func (s *State) changeMode(d *Device, dev netlink.Link, mode Mode, prog *ebpf.Program, held held) error {
	now, err := held.program(d.program)
	if err != nil {
		return err
	}
	if !hasTCX() {
		return &AttachError{Device: d.Name, Cause: fmt.Sprintf("it runs in %s mode, not %s", d.Mode, mode),
			Remedy: "this kernel, before Linux 6.6, cannot change the mode without a moment that nothing filters: `floodwall unload` first, if you can bear that"}
	}
	if (d.Mode == TC) != (mode == TC) {
		before := d.link
		if err := s.runIn(d, mode, prog); err != nil {
			return explainAttach(dev, err)
		}
		return errors.Join(before.Detach(), before.Close())
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
	err = s.runIn(d, mode, prog)
	if err != nil {
		err = errors.Join(explainAttach(dev, err), s.runIn(d, beforeMode, now))
	}
	return errors.Join(err, before.Close())
}

// runIn attaches a program to a device in a mode. It replaces the pin of the device's link by a pin of the new link. The caller closes the old link.
func (s *State) runIn(d *Device, mode Mode, prog *ebpf.Program) error {
	l, err := attachProgram(d.ifindex, mode, prog)
	if err != nil {
		return err
	}
	pin := s.path(dirLinks, d.pin)
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, l.Close())
	}
	if err := l.Pin(pin); err != nil {
		return errors.Join(fmt.Errorf("pinning the link of device %s: %w", d.Name, err), l.Close())
	}
	d.link, d.Mode = l, mode
	return nil
}

// dropAll drops all packets that enter a device, after XDP, until the returned link is closed.
func dropAll(ifindex int) (link.Link, error) {
	const shot = 2 // TC_ACT_SHOT of include/uapi/linux/pkt_cls.h
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "floodwall_shut", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, shot), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("program for the moment between two modes: %w", err)
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		return nil, fmt.Errorf("program for the moment between two modes: %w", err)
	}
	return l, nil
}

// LeaveNative switches the named devices from native mode to the mode Instead, if they run the generation in native mode. If the generation has no
// program for that mode, they get generic mode. Each device is changed independently: the error names the devices whose change failed. During a trial
// LeaveNative does nothing. The caller must hold the lock.
func (s *State) LeaveNative(names []string, number int) (changed []*Device, err error) {
	v, err := s.situation()
	if err != nil {
		return nil, err
	}
	defer v.close()
	if v.trial != nil || len(names) == 0 {
		return nil, nil
	}
	held, err := s.hold(v.devices)
	if err != nil {
		return nil, err
	}
	defer held.close()
	own := s.code(number, nil)
	defer own.close()
	mode := Instead()
	prog, err := own.program(mode)
	if errors.Is(err, os.ErrNotExist) {
		mode = Generic
		prog, err = own.program(mode)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		dev, findErr := findDevice(name)
		if findErr != nil {
			err = errors.Join(err, findErr)
			continue
		}
		d := find(v.devices, dev)
		if d == nil || d.Mode != Native {
			continue
		}
		if changeErr := s.changeMode(d, dev, mode, prog, held); changeErr != nil {
			err = errors.Join(err, changeErr)
			continue
		}
		changed = append(changed, d)
	}
	return changed, err
}
