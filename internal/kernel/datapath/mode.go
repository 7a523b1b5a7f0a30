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

// changeMode has a device run a program in another mode. The kernel runs no two modes on one device (dev_xdp_attach in net/core/dev.c), so
// there is a moment without any. In that moment, of less than a millisecond, a program behind XDP drops all that enters. The link that holds
// it is not pinned: it ends with this process. held has the program of now, in case that the new mode is refused. A process that dies in that
// moment leaves a device without a program, which Lacking tells and Reattach mends.
func (s *State) changeMode(d *Device, dev netlink.Link, mode Mode, prog *ebpf.Program, held held) error {
	now, err := held.program(d.program)
	if err != nil {
		return err
	}
	if !hasTCX() {
		return &AttachError{Device: d.Name, Cause: fmt.Sprintf("it runs in %s mode, not %s", d.Mode, mode),
			Remedy: "this kernel, before Linux 6.6, cannot change the mode without a moment that nothing filters: `floodwall unload` first, if you can bear that"}
	}
	shut, err := dropAll(d.ifindex)
	if err != nil {
		return err
	}
	defer shut.Close()
	before := d.Mode
	if err := d.link.Detach(); err != nil {
		return fmt.Errorf("changing the mode of device %s: %w", d.Name, err)
	}
	err = s.runIn(d, mode, prog)
	if err != nil {
		err = errors.Join(explainAttach(dev, err), s.runIn(d, before, now))
	}
	return err
}

// runIn attaches a program to a device whose link is detached, and pins the new link in its place.
func (s *State) runIn(d *Device, mode Mode, prog *ebpf.Program) error {
	flags := map[Mode]link.XDPAttachFlags{Native: link.XDPDriverMode, Generic: link.XDPGenericMode}[mode]
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: d.ifindex, Flags: flags})
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
	err = d.link.Close()
	d.link, d.Mode = l, mode
	return err
}

// dropAll drops all that enters a device behind XDP, until the link is closed.
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

// ToGeneric has devices of these names, which run a generation in native mode, run it in generic mode. Devices do not depend on each other: the
// error names those that failed. During a trial it does nothing. The caller holds the lock.
func (s *State) ToGeneric(names []string, number int) (changed []*Device, err error) {
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
	prog, err := own.program(Generic)
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
		if d == nil || d.Mode == Generic {
			continue
		}
		if changeErr := s.changeMode(d, dev, Generic, prog, held); changeErr != nil {
			err = errors.Join(err, changeErr)
			continue
		}
		changed = append(changed, d)
	}
	return changed, err
}
