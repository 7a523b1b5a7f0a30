package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// A generation can have two more programs, at the tc hook (TCX): one for what enters the devices behind XDP, when it
// protects services on this host, and one for what leaves them, when it has a guard or lets replies pass. XDP passes what only
// the first makes sense of, and drops replies to what the second has not noted. So both are there before XDP, change before it, and go
// after it. So whoever finds the XDP link of a device finds the others; a command that died can leave them behind without it. During a trial programs of bpf/trial.c are in their places too, which ask the same deadline.

// The sides of the tc hook stand among the modes. Nothing is attached in such a mode alone. Each is also the name of its
// program, and in the state directory that of the directory of its links, which go by the numbers of the devices.
const (
	entering Mode = image.Ingress
	leaving  Mode = image.Egress
)

var sides = []Mode{entering, leaving}

// isSide tells them from the modes of XDP.
func isSide(mode Mode) bool { return slices.Contains(sides, mode) }

// hooks are the kernel's names of the sides.
var hooks = map[Mode]ebpf.AttachType{entering: ebpf.AttachTCXIngress, leaving: ebpf.AttachTCXEgress}

// pinSide is the name of the program in the directory of a generation, when it has such a program.
func pinSide(side Mode) string { return "program_" + string(side) }

// attachment holds a program at a side: a link of TCX, or a classifier.
type attachment interface {
	Update(prog *ebpf.Program) error
	Detach() error
	Close() error
}

// sideLink is what a device has at one side.
type sideLink struct {
	link    attachment     // nil when it has none
	program ebpf.ProgramID // that it had when it was opened, 0 for none
}

// traffic is what the program of a side sees, for errors.
func (d *Device) traffic(side Mode) string {
	verb := map[Mode]string{entering: "receives", leaving: "sends"}[side]
	return fmt.Sprintf("what device %s %s", d.Name, verb)
}

// sideOf has the links of a device at a side, to be changed.
func (d *Device) sideOf(side Mode) *sideLink { return &d.sides[slices.Index(sides, side)] }

func (s *State) sidePin(d *Device, side Mode) string {
	return s.path(string(side), strconv.Itoa(d.ifindex))
}

// openSides opens the links at the tc hook of a device, as far as it has them.
func (s *State) openSides(d *Device) error {
	for _, side := range sides {
		if err := s.openSide(d, side); err != nil {
			d.closeSides()
			return err
		}
	}
	return nil
}

// openSide opens the link at a side of a device, if it has one. One that another device had, which has gone or has moved,
// is none.
func (s *State) openSide(d *Device, side Mode) error {
	if side == leaving && !hasTCX() {
		c := classifier{d.ifindex}
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
	there, err := link.QueryPrograms(link.QueryOptions{Target: d.ifindex, Attach: hooks[side]})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ours := func(p link.AttachedProgram) bool { id, ok := p.LinkID(); return ok && id == info.ID }
	if !slices.ContainsFunc(there.Programs, ours) {
		return l.Close()
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

// setSide gives a device a program for one side, nil for none.
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
	if c := (classifier{d.ifindex}); side == leaving && !hasTCX() {
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
	if err := removeUnused(pin); err != nil { // of a device that had the number before
		return explain(err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: d.ifindex, Program: prog, Attach: hooks[side]})
	if err != nil {
		return explain(err)
	}
	if err := l.Pin(pin); err != nil {
		return errors.Join(explain(err), l.Close())
	}
	d.sideOf(side).link = l
	return nil
}

// releaseSide detaches a device from its program for one side, if it has one.
func (s *State) releaseSide(d *Device, side Mode) error {
	at := d.sideOf(side)
	if at.link == nil {
		return nil
	}
	err := errors.Join(at.link.Detach(), at.link.Close())
	if removeErr := os.Remove(s.sidePin(d, side)); !errors.Is(removeErr, os.ErrNotExist) { // a classifier has none
		err = errors.Join(err, removeErr)
	}
	at.link = nil
	return err
}

// releaseSides detaches a device from its programs for all sides.
func (s *State) releaseSides(d *Device) (err error) {
	for _, side := range sides {
		err = errors.Join(err, s.releaseSide(d, side))
	}
	return err
}

// sweepSides removes the links of all but these devices, as far as they are known to be remains; all of them, if all is said.
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

// sweepClassifiers is sweepSide for what leaves where there is no TCX.
func (s *State) sweepClassifiers(devices []*Device, all bool) error {
	list, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	err = nil
	for _, dev := range list {
		c := classifier{dev.Attrs().Index}
		has := func(d *Device) bool { return d.ifindex == c.ifindex && d.sideOf(leaving).link != nil }
		if slices.ContainsFunc(devices, has) || !all && !s.isRemains(strconv.Itoa(c.ifindex), devices) {
			continue
		}
		if id, readErr := c.program(); id != 0 && readErr == nil {
			err = errors.Join(err, c.Detach())
		}
	}
	return err
}

// isRemains reports whether the link for a side of a device, known by its number, is of no use: the device is one whose
// links are all known, or it has gone, or no XDP program is attached to it, and so none that goes with the link.
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

// removal is one side of a device that is to have no program there any more.
type removal struct {
	device *Device
	side   Mode
}

// updateSide gives a device of the swap what it takes for one side. A device that is to have none any more keeps its
// program until the swap can no more be undone, and XDP passes nothing to it.
func (s *swap) updateSide(d *Device, side Mode, has, had bool) error {
	prog, err := s.sideFor(side, has, had)
	if err != nil {
		return err
	}
	if prog == nil {
		s.removals = append(s.removals, removal{d, side})
		return nil
	}
	return s.state.setSide(d, side, prog)
}

// updateSides gives a device of the swap what it takes for all sides.
func (s *swap) updateSides(d *Device, has, had bool) error {
	for _, side := range sides {
		if err := s.updateSide(d, side, has, had); err != nil {
			return err
		}
	}
	return nil
}

// sideFor is the program for a side of a device that the new and the old generation have, or have not; nil for none.
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

// restoreSide gives a device back what it had for a side when the swap began.
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

// removePrograms releases devices from programs for sides for which the new generation has none.
func (s *swap) removePrograms() (err error) {
	for _, at := range s.removals {
		err = errors.Join(err, s.state.releaseSide(at.device, at.side))
	}
	return err
}
