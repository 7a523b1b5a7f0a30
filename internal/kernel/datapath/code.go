// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// pins are the names of the programs in the directory of a generation, by mode. A generation has only those that a device needed.
var pins = map[Mode]string{Native: pinNative, Generic: pinLinear, TC: "program_tc", TC + bareSuffix: "program_tc_bare",
	marking: "program_marking", unmarked: "program_unmarked"}

// ownModes lists the modes in pins. handing lists the others: those of programs that exist only for a change of the mode.
var (
	ownModes = []Mode{Native, Generic, TC, TC + bareSuffix}
	handing  = []Mode{marking, unmarked}
)

// code has the programs of a generation, one for each mode. They were just loaded, or are opened from their pins.
type code struct {
	number int
	dir    string
	fresh  *Program // nil when the generation exists only as pins
	opened map[Mode]*ebpf.Program

	pins func(Mode) string // returns the path of a program's pin; nil: the pins are in the generation's directory
}

func (s *State) code(number int, fresh *Program) *code {
	return &code{number: number, dir: s.path(generationName(number)), fresh: fresh, opened: map[Mode]*ebpf.Program{}}
}

// program returns the program for a mode. It is valid until close. For a hook without a program in this generation, it is nil. A program that only
// some devices need is loaded and pinned when it is first used.
func (c *code) program(mode Mode) (*ebpf.Program, error) {
	if c.fresh == nil {
		return c.load(mode)
	}
	prog, err := c.fresh.program(mode)
	if prog == nil || err != nil || mode == Native || isSide(mode) && !mode.isBare() { // these are pinned with the generation
		return prog, err
	}
	path := c.pin(mode)
	if _, err := os.Stat(path); err == nil {
		return prog, nil
	}
	return prog, pinClone(prog, path)
}

// program returns the program for a mode or a side; nil if the image has none for a side.
func (p *Program) program(mode Mode) (*ebpf.Program, error) {
	switch {
	case mode == Native:
		return p.Native(), nil
	case mode == Generic:
		return p.Linear()
	case mode == TC:
		return p.programAt(image.TC, image.Program)
	case mode == TC+bareSuffix:
		return p.programAt(image.TCBare, image.Program)
	case mode.isBare():
		return p.programAt(image.TCBare, string(mode.withLink()))
	}
	return p.side(mode), nil
}

func (p *Program) programAt(h image.Hook, name string) (*ebpf.Program, error) {
	c, err := p.At(h)
	if err != nil {
		return nil, err
	}
	return c.Programs[name], nil
}

// load opens a pinned program.
func (c *code) load(mode Mode) (*ebpf.Program, error) {
	if prog := c.opened[mode]; prog != nil {
		return prog, nil
	}
	prog, err := ebpf.LoadPinnedProgram(c.pin(mode), nil)
	if errors.Is(err, os.ErrNotExist) && mode == Generic {
		// No device used generic mode when the generation was loaded, so there is no program for this mode. The native program is used instead. It
		// reads only the first buffer of a frame, which has all headers: since Linux 6.9 the kernel makes this buffer as large as a page
		// (skb_pp_cow_data in net/core/skbuff.c), and before 6.9 it makes each frame linear.
		prog, err = ebpf.LoadPinnedProgram(c.pin(Native), nil)
	}
	if errors.Is(err, os.ErrNotExist) && isSide(mode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", c.number, err)
	}
	c.opened[mode] = prog
	return prog, nil
}

func (c *code) pin(mode Mode) string {
	if c.pins != nil {
		return c.pins(mode)
	}
	if isSide(mode) {
		return filepath.Join(c.dir, pinSide(mode))
	}
	return filepath.Join(c.dir, pins[mode])
}

func (c *code) close() {
	for _, prog := range c.opened {
		prog.Close()
	}
}
