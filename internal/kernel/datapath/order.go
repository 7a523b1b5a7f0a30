// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
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
// recorded it, so the answers would be no replies. Therefore our programs are the first for entering packets, and our program for leaving packets is
// the last. Another tool may take one of these places later. The kernel cannot move a link, so our program is then attached anew.

// Misplaced says that programs of other tools have taken the place of ours in the order of a device's programs at tc.
type Misplaced struct {
	Device  string
	Leaving bool     // the others see packets that leave after ours; else they see packets that enter before ours
	Others  []string // names of their programs
}

func (m Misplaced) String() string {
	sees := "sees entering packets before Floodwall does, and may accept them"
	if m.Leaving {
		sees = "sees leaving packets after Floodwall does, and may change their addresses, so that answers are no replies"
	}
	return fmt.Sprintf("%s at tc of device %s %s", strings.Join(m.Others, ", "), m.Device, sees)
}

// Misplaced tells at which hooks of a device programs of other tools have taken the place of ours.
func (d *Device) Misplaced() (list []Misplaced) {
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
	if names = slices.DeleteFunc(namesBut(ours, programs[:last+1]), IsOurs); len(names) == 0 {
		return nil
	}
	return names
}

// namesBut returns the names of attached programs, except those with the given IDs. A program has its number as its name if its name cannot be read. That
// takes CAP_SYS_ADMIN, which the daemon does not have. namesBut leaves out programs that have gone.
func namesBut(ids []ebpf.ProgramID, programs []link.AttachedProgram) (names []string) {
	for _, p := range programs {
		if slices.Contains(ids, p.ID) {
			continue
		}
		name, err := ProgramName(p.ID)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		names = append(names, cmp.Or(name, fmt.Sprintf("program %d", p.ID)))
	}
	return names
}

// Reorder gives our programs at tc their place again where `selects` returns true, and returns what it changed. During a change, which takes less than
// a millisecond, it drops the packets that our program would miss. The caller must hold the lock.
func (s *State) Reorder(selects func(Misplaced) bool) (changed []Misplaced, err error) {
	v, err := s.situation()
	if err != nil {
		return nil, err
	}
	defer v.close()
	for _, d := range v.devices {
		list := slices.DeleteFunc(d.Misplaced(), func(m Misplaced) bool { return !selects(m) })
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
	if !isLeaving && d.Mode == TC {
		prog, err := held.program(d.program)
		if err == nil {
			err = s.changeMode(d, dev, TC, prog, held)
		}
		if err != nil {
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
	shut, err := dropAllAt(d.ifindex, hooks[side])
	if err != nil {
		return err
	}
	defer shut.Close()
	if err := s.releaseSide(d, side); err != nil {
		return err
	}
	return s.attachSide(d, side, prog)
}
