package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// The kernel runs the links of TCX at a hook in their order. A program before ours that accepts an entering packet ends the chain, so ours would not
// see the packet (tcx_run in net/core/dev.c). A program after ours that changes the address of a leaving packet changes the flow after ours has
// recorded it, so the answers would be no replies. Therefore ours are the first programs that entering packets meet, and the last one that leaving
// packets meet. Another tool may attach its program to the same place later. The kernel cannot move a link, so ours is then attached anew.

// Misplaced says that programs of other tools have taken the place of ours in the order of a device's programs at tc.
type Misplaced struct {
	Device  string
	Leaving bool     // the others see packets that leave after ours; else they see packets that enter before ours
	Others  []string // names of their programs
}

func (m Misplaced) String() string {
	sees := "sees what enters before ours does, and may accept it"
	if m.Leaving {
		sees = "sees what leaves after ours does, and may change its addresses, so that answers are no replies"
	}
	return fmt.Sprintf("%s at tc of device %s %s", strings.Join(m.Others, ", "), m.Device, sees)
}

// Misplaced lists the devices on which programs of other tools have taken the place of ours at tc.
func (s *State) Misplaced() (list []Misplaced, err error) {
	devices, err := s.devices()
	if err != nil {
		return nil, err
	}
	defer closeDevices(devices)
	for _, d := range devices {
		list = append(list, d.misplaced()...)
	}
	return list, nil
}

func (d *Device) misplaced() (list []Misplaced) {
	if !hasTCX() {
		return nil
	}
	for _, side := range sides {
		if others := d.overtakers(side); others != nil {
			list = append(list, Misplaced{Device: d.Name, Leaving: side == leaving, Others: others})
		}
	}
	return list
}

// overtakers returns the names of other tools' programs that come before ours at the hook of a side, and after ours at the side `leaving`.
func (d *Device) overtakers(side Mode) (names []string) {
	ours := []ebpf.ProgramID{d.sideOf(side).program}
	if side == entering && d.Mode == TC {
		ours = append(ours, d.program)
	}
	there, err := link.QueryPrograms(link.QueryOptions{Target: d.ifindex, Attach: hooks[side]})
	if err != nil {
		return nil
	}
	programs := there.Programs
	if side == leaving {
		slices.Reverse(programs)
	}
	last := -1
	for i, p := range programs {
		if slices.Contains(ours, p.ID) {
			last = i
		}
	}
	for _, p := range programs[:last+1] {
		if name := programName(p.ID); name != "" && !slices.Contains(ours, p.ID) && !IsOurs(name) {
			names = append(names, name)
		}
	}
	return names
}

// programName returns the name of a program, or its number if there is no name. To read a name takes CAP_SYS_ADMIN, which the daemon does not have.
// programName returns "" if the program has gone.
func programName(id ebpf.ProgramID) string {
	prog, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err == nil {
		defer prog.Close()
		if info, err := prog.Info(); err == nil && info.Name != "" {
			return info.Name
		}
	}
	return fmt.Sprintf("program %d", id)
}

// Reorder gives our programs at tc their place again where `selects` returns true, and returns the devices that needed it. During the change of a device, which takes less than a
// millisecond, it drops the packets that our program would miss. The caller must hold the lock.
func (s *State) Reorder(selects func(Misplaced) bool) (changed []Misplaced, err error) {
	v, err := s.situation()
	if err != nil {
		return nil, err
	}
	defer v.close()
	for _, d := range v.devices {
		list := slices.DeleteFunc(d.misplaced(), func(m Misplaced) bool { return !selects(m) })
		if len(list) == 0 {
			continue
		}
		held, holdErr := s.hold([]*Device{d})
		if holdErr != nil {
			err = errors.Join(err, holdErr)
			continue
		}
		for _, m := range list {
			moveErr := s.reorder(d, m.Leaving, held)
			if moveErr == nil {
				changed = append(changed, m)
			}
			err = errors.Join(err, moveErr)
		}
		held.close()
	}
	return changed, err
}

// reorder attaches our programs at one hook of a device anew.
func (s *State) reorder(d *Device, isLeaving bool, held held) error {
	side := entering
	if isLeaving {
		side = leaving
	}
	dev, err := netlink.LinkByIndex(d.ifindex)
	if err != nil {
		return err
	}
	shut, err := dropAllAt(d.ifindex, hooks[side])
	if err != nil {
		return err
	}
	defer shut.Close()
	if !isLeaving && d.Mode == TC {
		prog, err := held.program(d.program)
		if err != nil {
			return err
		}
		before := d.link
		if err := before.Detach(); err != nil { // the kernel attaches a program only once to a hook
			return fmt.Errorf("attaching to device %s anew: %w", d.Name, err)
		}
		if err := errors.Join(s.runIn(d, dev, TC, prog), before.Close()); err != nil {
			return err
		}
	}
	at := d.sideOf(side)
	if at.link == nil {
		return nil
	}
	prog, err := held.program(at.program)
	if err != nil {
		return err
	}
	if err := s.releaseSide(d, side); err != nil {
		return err
	}
	return s.attachSide(d, side, prog)
}
