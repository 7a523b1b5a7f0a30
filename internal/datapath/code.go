package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// code is the programs of a generation, one for each mode, wherever they are: just loaded, or only pinned.
type code struct {
	number int
	dir    string
	fresh  *Program // nil when the generation is only pinned
	opened map[Mode]*ebpf.Program
}

func (s *State) code(number int, fresh *Program) *code {
	return &code{number: number, dir: s.path(generationName(number)), fresh: fresh, opened: map[Mode]*ebpf.Program{}}
}

// program is the program that a device's mode takes, valid until close; nil for what leaves, when the generation has none
// for that. That for generic mode is loaded and pinned when first used, before anything holds it.
func (c *code) program(mode Mode) (*ebpf.Program, error) {
	if c.fresh == nil {
		return c.load(mode)
	}
	switch mode {
	case Native:
		return c.fresh.Native(), nil
	case leaving:
		return c.fresh.Egress(), nil
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
	if errors.Is(err, os.ErrNotExist) && mode == leaving {
		return nil, nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("generation %d has no program for %s mode: apply its policy again", c.number, mode)
	}
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", c.number, err)
	}
	c.opened[mode] = prog
	return prog, nil
}

func (c *code) pin(mode Mode) string {
	names := map[Mode]string{Native: pinNative, Generic: pinLinear, leaving: pinEgress}
	return filepath.Join(c.dir, names[mode])
}

func (c *code) close() {
	for _, prog := range c.opened {
		prog.Close()
	}
}
