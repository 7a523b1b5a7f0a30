package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// code holds the programs of a generation, one for each mode: just loaded, or opened from their pins.
type code struct {
	number int
	dir    string
	fresh  *Program // nil when the generation is only pinned
	opened map[Mode]*ebpf.Program

	pins func(Mode) string // where they are pinned; nil is in the generation's directory
}

func (s *State) code(number int, fresh *Program) *code {
	return &code{number: number, dir: s.path(generationName(number)), fresh: fresh, opened: map[Mode]*ebpf.Program{}}
}

// program returns the program for a device's mode, valid until close; nil for a hook for which the generation has none.
// The program for generic mode is loaded and pinned when it is first used.
func (c *code) program(mode Mode) (*ebpf.Program, error) {
	if c.fresh == nil {
		return c.load(mode)
	}
	if isSide(mode) {
		return c.fresh.side(mode), nil
	}
	if mode == Native {
		return c.fresh.Native(), nil
	}
	prog, err := c.fresh.Linear()
	if err != nil {
		return nil, err
	}
	path := c.pin(mode)
	if _, err := os.Stat(path); err == nil {
		return prog, nil
	}
	return prog, pinClone(prog, path)
}

// load opens a pinned program.
func (c *code) load(mode Mode) (*ebpf.Program, error) {
	if prog := c.opened[mode]; prog != nil {
		return prog, nil
	}
	prog, err := ebpf.LoadPinnedProgram(c.pin(mode), nil)
	if errors.Is(err, os.ErrNotExist) && mode == Generic {
		// No device ran it in that mode when it was loaded. The native program stands in: it reads only the first buffer of a frame, which has all headers: since Linux 6.9 the kernel
		// makes it as large as a page (skb_pp_cow_data in net/core/skbuff.c), and before that it makes each frame
		// linear.
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
	return filepath.Join(c.dir, map[Mode]string{Native: pinNative, Generic: pinLinear}[mode])
}

func (c *code) close() {
	for _, prog := range c.opened {
		prog.Close()
	}
}
