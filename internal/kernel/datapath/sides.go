// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// A generation can have two more programs, at the tc hook (TCX). One is for packets that enter the devices after XDP, if the generation protects
// services on this host. The other is for packets that leave the devices, if the generation has a guard or lets replies pass. XDP passes packets that
// only the first program can handle, and drops replies to packets that the second one has not recorded. So both are attached before XDP, changed
// before it, and removed after it. If the XDP link of a device exists, the other links exist too. A command that died can leave the other links
// without the XDP link. During a trial, programs of bpf/trial.c replace both; they check the same deadline as XDP.

// The sides of the tc hook are values of Mode, although no device has such a mode. Each value is also the name of the side's program. It is also the
// name of a directory in the state directory, which has the links of this side by the index of the device.
const (
	entering Mode = image.Ingress
	leaving  Mode = image.Egress
)

var sides = []Mode{entering, leaving}

// bareSides are the sides of devices whose packets begin with the IP header.
var bareSides = []Mode{entering + bareSuffix, leaving + bareSuffix}

// isSide reports whether a Mode is a side and not a mode of a device.
func isSide(mode Mode) bool { return slices.Contains(sides, mode.withLink()) }

// bareSuffix is the end of a Mode of a device whose packets begin with the IP header. Its programs are compiled for such packets.
const bareSuffix = "_bare"

// place returns the Mode whose program a device runs in a mode or at a side.
func (d *Device) place(mode Mode) Mode {
	if d.bare {
		return mode + bareSuffix
	}
	return mode
}

// withLink returns a Mode without bareSuffix.
func (m Mode) withLink() Mode { return Mode(strings.TrimSuffix(string(m), bareSuffix)) }

// isBare reports whether a Mode is for packets that begin with the IP header.
func (m Mode) isBare() bool { return m != m.withLink() }

// hooks are the kernel's attach types of the sides.
var hooks = map[Mode]ebpf.AttachType{entering: ebpf.AttachTCXIngress, leaving: ebpf.AttachTCXEgress}

// pinSide returns the name of a side's program in the directory of a generation.
func pinSide(side Mode) string { return "program_" + string(side) }

// attachment is an attached program at a side of the tc hook: a link of TCX, or a classifier.
type attachment interface {
	Update(prog *ebpf.Program) error
	Detach() error
	Close() error
}

// pinnable is an attachment of the main program of a device: a link of XDP or TCX, or a classifier.
type pinnable interface {
	attachment
	Pin(path string) error
}

// sideLink is the attachment of a device at one side.
type sideLink struct {
	link    attachment     // nil when no program is attached
	program ebpf.ProgramID // the program when the link was opened; 0 for none
}

// traffic describes the packets that the program of a side sees. The text is used in errors.
func (d *Device) traffic(side Mode) string {
	verb := map[Mode]string{entering: "receives", leaving: "sends"}[side]
	return fmt.Sprintf("what device %s %s", d.Name, verb)
}

// sideOf returns a pointer to the attachment of a device at a side.
func (d *Device) sideOf(side Mode) *sideLink { return &d.sides[slices.Index(sides, side)] }

func (s *State) sidePin(d *Device, side Mode) string {
	return s.path(string(side), strconv.Itoa(d.ifindex))
}

// openSides opens the existing links of a device at the tc hook.
func (s *State) openSides(d *Device) error {
	for _, side := range sides {
		if err := s.openSide(d, side); err != nil {
			d.closeSides()
			return err
		}
	}
	return nil
}

// openSide opens the link of a device at a side, if there is one. It ignores a link of an earlier device with the same index, which has gone away or
// moved.
func (s *State) openSide(d *Device, side Mode) error {
	if side == leaving && !hasTCX() {
		c := egressOf(d.ifindex)
		id, err := c.program()
		if id != 0 {
			*d.sideOf(side) = sideLink{c, id}
		}
		return err
	}
	l, err := link.LoadPinnedLink(s.sidePin(d, side), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := l.Info()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if has, err := hasLink(d.ifindex, hooks[side], info.ID); err != nil || !has {
		return errors.Join(err, l.Close())
	}
	*d.sideOf(side) = sideLink{l, info.Program}
	return nil
}

func (d *Device) closeSides() {
	for _, at := range d.sides {
		if at.link != nil {
			at.link.Close()
		}
	}
}

// setSide sets the program of a device at a side. If prog is nil, it removes the program.
func (s *State) setSide(d *Device, side Mode, prog *ebpf.Program) error {
	at := d.sideOf(side)
	switch {
	case prog == nil:
		return s.releaseSide(d, side)
	case at.link == nil:
		return s.attachSide(d, side, prog)
	}
	if err := at.link.Update(prog); err != nil {
		return fmt.Errorf("updating %s: %w", d.traffic(side), err)
	}
	return nil
}

func (s *State) attachSide(d *Device, side Mode, prog *ebpf.Program) error {
	explain := func(err error) error { return fmt.Errorf("attaching to %s: %w", d.traffic(side), err) }
	if c := egressOf(d.ifindex); side == leaving && !hasTCX() {
		if err := c.Update(prog); err != nil {
			return explain(err)
		}
		d.sideOf(side).link = c
		return nil
	}
	if err := os.MkdirAll(s.path(string(side)), 0o700); err != nil {
		return explain(err)
	}
	pin := s.sidePin(d, side)
	if err := removeUnused(pin); err != nil { // an earlier device with the same index may have left this pin
		return explain(err)
	}
	anchor := link.Tail()
	if side == entering {
		anchor = link.Head()
		if main, is := d.link.(link.Link); is && d.Mode == TC {
			anchor = link.AfterLink(main)
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: d.ifindex, Program: prog, Attach: hooks[side], Anchor: anchor})
	if err != nil {
		return explain(err)
	}
	if err := l.Pin(pin); err != nil {
		return errors.Join(explain(err), l.Close())
	}
	d.sideOf(side).link = l
	return nil
}

// releaseSide detaches the program of a device at a side, if there is one.
func (s *State) releaseSide(d *Device, side Mode) error {
	at := d.sideOf(side)
	if at.link == nil {
		return nil
	}
	err := errors.Join(at.link.Detach(), at.link.Close())
	if removeErr := os.Remove(s.sidePin(d, side)); !errors.Is(removeErr, os.ErrNotExist) { // a classifier has no pin
		err = errors.Join(err, removeErr)
	}
	at.link = nil
	return err
}

// releaseSides detaches the programs of a device at all sides.
func (s *State) releaseSides(d *Device) (err error) {
	for _, side := range sides {
		err = errors.Join(err, s.releaseSide(d, side))
	}
	return err
}

// sweepSides removes links at the sides that isRemains reports as useless. If `all` is true, it removes the links of all other devices, too.
func (s *State) sweepSides(devices []*Device, all bool) (err error) {
	for _, side := range sides {
		err = errors.Join(err, s.sweepSide(side, devices, all))
	}
	return err
}

func (s *State) sweepSide(side Mode, devices []*Device, all bool) error {
	if side == leaving && !hasTCX() {
		return s.sweepClassifiers(devices, all)
	}
	entries, err := os.ReadDir(s.path(string(side)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		path := s.path(string(side), e.Name())
		has := func(d *Device) bool { return d.sideOf(side).link != nil && s.sidePin(d, side) == path }
		if !slices.ContainsFunc(devices, has) && (all || s.isRemains(e.Name(), devices)) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// sweepClassifiers is sweepSide for leaving packets, on a kernel without TCX. It also removes main programs that a command left which died before it
// pinned them.
func (s *State) sweepClassifiers(devices []*Device, all bool) error {
	list, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	err = nil
	for _, dev := range list {
		index := dev.Attrs().Index
		for c, has := range map[classifier]func(*Device) bool{
			egressOf(index):  func(d *Device) bool { return d.ifindex == index && d.sideOf(leaving).link != nil },
			ingressOf(index): func(d *Device) bool { return d.ifindex == index && d.Mode == TC },
		} {
			if slices.ContainsFunc(devices, has) || !all && !s.isRemains(strconv.Itoa(index), devices) {
				continue
			}
			if id, readErr := c.program(); id != 0 && readErr == nil {
				err = errors.Join(err, c.Detach())
			}
		}
	}
	return err
}

// isRemains reports whether the link of a device at a side is useless. A link is useless if all links of the device are in devices, if the device has
// gone away, or if the device has no XDP program to which the link could belong.
func (s *State) isRemains(number string, devices []*Device) bool {
	index, err := strconv.Atoi(number)
	if err != nil {
		return false
	}
	if slices.ContainsFunc(devices, func(d *Device) bool { return d.ifindex == index }) {
		return true
	}
	dev, err := netlink.LinkByIndex(index)
	var none netlink.LinkNotFoundError
	return errors.As(err, &none) || err == nil && (dev.Attrs().Xdp == nil || !dev.Attrs().Xdp.Attached)
}

// removal is one side of a device whose program must be removed.
type removal struct {
	device *Device
	side   Mode
}

// updateSide sets the program that a device of the swap needs at one side. If the device no longer needs a program there, the old program stays
// attached until the swap can no longer be undone. XDP passes no packets to this old program.
func (s *swap) updateSide(d *Device, side Mode, has, had bool) error {
	prog, err := s.sideFor(d.place(side), has, had)
	if err != nil {
		return err
	}
	if prog == nil {
		s.removals = append(s.removals, removal{d, side})
		return nil
	}
	return s.state.setSide(d, side, prog)
}

// updateSides sets the programs that a device of the swap needs at all sides.
func (s *swap) updateSides(d *Device, has, had bool) error {
	for _, side := range sides {
		if err := s.updateSide(d, side, has, had); err != nil {
			return err
		}
	}
	return nil
}

// sideFor returns the program at a side for a device. `has` and `had` say whether the new and the old generation have the device. It returns nil if there
// is no program.
func (s *swap) sideFor(side Mode, has, had bool) (*ebpf.Program, error) {
	if s.trial == nil {
		return s.code.program(side)
	}
	v := variant{side, has, had}
	if runs, err := s.trial.runs(v); !runs || err != nil {
		return nil, err
	}
	return s.trial.program(v)
}

// restoreSide restores the program that a device had at a side when the swap started.
func (s *swap) restoreSide(d *Device, side Mode) error {
	had := d.sideOf(side).program
	if had == 0 {
		return s.state.releaseSide(d, side)
	}
	prog, err := s.held.program(had)
	if err != nil {
		return fmt.Errorf("restoring %s: %w", d.traffic(side), err)
	}
	return s.state.setSide(d, side, prog)
}

// removePrograms detaches the programs at sides at which the new generation has no program.
func (s *swap) removePrograms() (err error) {
	for _, at := range s.removals {
		err = errors.Join(err, s.state.releaseSide(at.device, at.side))
	}
	return err
}
