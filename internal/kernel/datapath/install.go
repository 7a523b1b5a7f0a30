// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
)

// Attachment is a device to attach to, and its mode.
type Attachment struct {
	Device string
	Mode   Mode
	Chosen bool // the mode was chosen, not asked for: if the kernel cannot load the program for tc, generic mode serves
	Spare  bool // also load the program for the mode Instead on a kernel before Linux 6.6: the device may later have to leave native mode
}

// Install makes a loaded program the running generation on exactly the devices in to. The caller must hold the lock.
//
// At every moment each device has either the old or the new program. A device without an old program gets the new one. If the change of one device
// fails, the changed devices get the old program back, and Install returns the error. If the process dies in between, each device keeps its present
// program, and the next Install cleans up. The previous generation is kept for Rollback; the one that was kept until now is removed.
//
// A nonzero ends starts a trial. At that time the old generation returns unless Confirm is called before, also if this process dies at any point.
// Devices that only the old generation had pass all packets during the trial. Devices that only the new one has pass all packets after an unconfirmed
// trial. Install replaces a trial that has not ended. The generation to return to is still the one from before the replaced trial, with or without a
// new trial.
//
// p is nil for a record, which is a generation of another target. All devices are then released, at once or when the trial is confirmed.
func (s *State) Install(p *Program, manifest []byte, to []Attachment, ends time.Time) ([]*Device, error) {
	return s.install(p, manifest, to, ends, 0)
}

func (s *State) install(p *Program, manifest []byte, to []Attachment, ends time.Time, replaces int) ([]*Device, error) {
	if err := s.FinishTrial(); err != nil {
		return nil, err
	}
	v, err := s.situation()
	if err != nil {
		return nil, err
	}
	defer v.close()
	if v.base != 0 && !v.mixed {
		if err := s.remember(v.base, v.devices); err != nil {
			return nil, err
		}
	}
	number, err := s.pinGeneration(p, manifest, v.base)
	if err == nil && replaces != 0 {
		err = s.noteReplaces(number, replaces)
	}
	if err != nil {
		return nil, err
	}
	swap := &swap{state: s, code: s.code(number, p), old: v.devices}
	defer swap.close()
	if !ends.IsZero() {
		err = swap.onTrial(ends, v.base)
	}
	if err == nil {
		err = swap.run(to)
	}
	if err != nil {
		return nil, errors.Join(err, swap.undo(), s.discard(number))
	}
	if err = swap.finish(); replaces != 0 {
		return swap.now(), err
	}
	keep := []int{number, v.base}
	if !ends.IsZero() {
		before, readErr := s.before(v.base)
		keep, err = append(keep, before), errors.Join(err, readErr)
	}
	return swap.now(), errors.Join(err, s.sweep(keep...))
}

// discard removes a generation, unless a device still runs it because the old program could not be restored.
func (s *State) discard(number int) error {
	return s.sweepIf(func(n int) bool { return n == number })
}

// Names in a generation's directory. Maps are pinned next to them under their own names.
const (
	pinNative   = "program"
	pinLinear   = "program_linear"
	pinManifest = "manifest"
)

// pinGeneration pins the program, the maps and the manifest of a generation under the next free number.
func (s *State) pinGeneration(p *Program, manifest []byte, before int) (number int, err error) {
	numbers, err := s.generations()
	if err != nil {
		return 0, err
	}
	onTrial, err := s.trialNumbers()
	if err != nil {
		return 0, err
	}
	number = 1
	for _, n := range append(numbers, onTrial...) {
		number = max(number, n+1)
	}
	dir := s.path(generationName(number))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, fmt.Errorf("generation %d: %w", number, err)
	}
	if err := s.furnishGeneration(number, p, manifest, before); err != nil {
		return 0, errors.Join(fmt.Errorf("pinning generation %d: %w", number, err), s.removeGeneration(number))
	}
	return number, nil
}

// furnishGeneration fills the directory of a generation. It writes the manifest last, so a generation with a manifest is complete.
func (s *State) furnishGeneration(number int, p *Program, manifest []byte, before int) error {
	dir := s.path(generationName(number))
	if p != nil {
		if err := p.pin(dir); err != nil {
			return err
		}
		if err := writeFormats(dir); err != nil {
			return err
		}
	}
	if err := s.setBefore(number, before); err != nil {
		return err
	}
	return pinText(dir+"/"+pinManifest, pinManifest, manifest)
}

func (p *Program) pin(dir string) error {
	if err := pinClone(p.Native(), dir+"/"+pinNative); err != nil {
		return err
	}
	for _, side := range sides {
		if prog := p.side(side); prog != nil {
			if err := pinClone(prog, dir+"/"+pinSide(side)); err != nil {
				return err
			}
		}
	}
	for name, m := range p.collection.Maps {
		if err := pinMap(m, dir+"/"+pinName(name)); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	return nil
}

// pinMap and pinClone pin a second descriptor, so that closing the first one does not affect the pin.
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
