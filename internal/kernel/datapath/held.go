// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
)

// held are the programs that the devices had when a swap started. With them a failed swap is undone. They are opened from their pins before anything
// changes. Opening them by ID (BPF_PROG_GET_FD_BY_ID) would require CAP_SYS_ADMIN, which the daemon does not have.
type held map[ebpf.ProgramID]*ebpf.Program

// hold opens the programs of the devices. It returns an error if a program is not pinned and cannot be opened by its ID, because then the change
// could not be undone.
func (s *State) hold(devices []*Device) (held, error) {
	h := held{}
	for _, d := range devices {
		h[d.program] = nil
		for _, at := range d.sides {
			if at.link != nil && at.program != 0 {
				h[at.program] = nil
			}
		}
	}
	if err := s.openHeld(h); err != nil {
		h.close()
		return nil, err
	}
	for id, prog := range h {
		if prog != nil {
			continue
		}
		var err error
		if h[id], err = ebpf.NewProgramFromID(id); err != nil {
			delete(h, id)
			h.close()
			return nil, &StateError{Dir: s.dir, Cause: fmt.Sprintf("has no pin of program %d, which a device runs: a change could not be undone", id),
				Remedy: "run this as root with all capabilities, or `floodwall unload` first, if you can bear a moment without a filter"}
		}
	}
	return h, nil
}

// openHeld opens the pinned programs among those in h.
func (s *State) openHeld(h held) error {
	dirs, err := s.programPins()
	if err != nil {
		return err
	}
	for _, path := range dirs {
		prog, err := ebpf.LoadPinnedProgram(path, nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("program %s: %w", path, err)
		}
		info, err := prog.Info()
		if err != nil {
			prog.Close()
			return fmt.Errorf("program %s: %w", path, err)
		}
		id, _ := info.ID()
		if known, wanted := h[id]; wanted && known == nil {
			h[id] = prog
			continue
		}
		prog.Close()
	}
	return nil
}

// programPins lists the paths at which the programs of generations and trials may be pinned.
func (s *State) programPins() (paths []string, err error) {
	numbers, err := s.generations()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		own := s.code(n, nil)
		for _, mode := range slices.Concat(ownModes, handing, sides, bareSides) {
			paths = append(paths, own.pin(mode))
		}
	}
	if numbers, err = s.trialNumbers(); err != nil {
		return nil, err
	}
	for _, n := range numbers {
		for _, v := range variants {
			for _, mode := range slices.Concat([]Mode{v.mode}, sides, bareSides) {
				paths = append(paths, s.path(trialName(n), variant{mode, v.has, v.had}.pin()))
			}
		}
	}
	return paths, nil
}

// program returns a program that a device had when the swap started. It is valid until close.
func (h held) program(id ebpf.ProgramID) (*ebpf.Program, error) {
	if prog := h[id]; prog != nil {
		return prog, nil
	}
	return nil, fmt.Errorf("program %d ran on no device when the change began", id)
}

func (h held) close() {
	for _, prog := range h {
		prog.Close() // Close accepts nil
	}
}
