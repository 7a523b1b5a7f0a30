package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
)

// Attachment is a device to attach to, and how.
type Attachment struct {
	Device string
	Mode   Mode
}

// Install makes a loaded program the generation that runs on exactly these devices. The caller holds the lock.
//
// Every device has the old program or the new one at every moment; one that had none gets the new one. If any device
// refuses, those that were changed get the old program back, and the error is returned. If the process dies in between,
// each device goes on with the program it has, and the next Install cleans up.
func (s *State) Install(p *Program, manifest []byte, to []Attachment) ([]*Device, error) {
	before, err := s.generations()
	if err != nil {
		return nil, err
	}
	old, err := s.devices()
	if err != nil {
		return nil, err
	}
	defer closeDevices(old)
	number, err := s.pinGeneration(p, manifest)
	if err != nil {
		return nil, err
	}
	swap := &swap{state: s, program: p, number: number, old: old}
	for _, a := range to {
		if err := swap.device(a); err != nil {
			return nil, errors.Join(err, swap.undo(), s.removeUnlessRunning(number))
		}
	}
	err = errors.Join(swap.detachOthers(), s.settle(swap.done()))
	for _, n := range before {
		err = errors.Join(err, s.removeGeneration(n))
	}
	return swap.now(), err
}

// removeUnlessRunning removes a generation, but not when a device could not be given back what it had: what that runs
// stays visible to status, and the next Install or Unload can end it.
func (s *State) removeUnlessRunning(n int) error {
	devices, err := s.devices()
	if err != nil {
		return err
	}
	defer closeDevices(devices)
	if runsOn(s, n, devices) {
		return nil
	}
	return s.removeGeneration(n)
}

// runsOn reports whether a generation's program is the one that any of the devices has.
func runsOn(s *State, n int, devices []*Device) bool {
	for _, file := range []string{pinNative, pinLinear} {
		prog, err := ebpf.LoadPinnedProgram(s.path(generationName(n), file), nil)
		if err != nil {
			continue
		}
		defer prog.Close()
		info, err := prog.Info()
		if err != nil {
			continue
		}
		id, _ := info.ID()
		if slices.ContainsFunc(devices, func(d *Device) bool { return d.program == id }) {
			return true
		}
	}
	return false
}

// Names in a generation's directory; maps are beside them under their own.
const (
	pinNative   = "program"
	pinLinear   = "program_linear"
	pinManifest = "manifest"
)

// pinGeneration pins program, maps and manifest under the next free number.
func (s *State) pinGeneration(p *Program, manifest []byte) (number int, err error) {
	numbers, err := s.generations()
	if err != nil {
		return 0, err
	}
	number = 1
	for _, n := range numbers {
		number = max(number, n+1)
	}
	dir := s.path(generationName(number))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, fmt.Errorf("generation %d: %w", number, err)
	}
	if err := p.pin(dir, manifest); err != nil {
		return 0, errors.Join(fmt.Errorf("pinning generation %d: %w", number, err), s.removeGeneration(number))
	}
	return number, nil
}

func (p *Program) pin(dir string, manifest []byte) error {
	for name, m := range p.collection.Maps {
		if err := pinMap(m, dir+"/"+pinName(name)); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	if err := pinManifestMap(dir, manifest); err != nil {
		return err
	}
	return pinClone(p.Native(), dir+"/"+pinNative)
}

// pinMap and pinClone pin a second descriptor, so that closing the first does not depend on where it was pinned.
func pinMap(m *ebpf.Map, path string) error {
	clone, err := m.Clone()
	if err != nil {
		return err
	}
	defer clone.Close()
	return clone.Pin(path)
}

func pinClone(p *ebpf.Program, path string) error {
	clone, err := p.Clone()
	if err != nil {
		return err
	}
	defer clone.Close()
	return clone.Pin(path)
}
