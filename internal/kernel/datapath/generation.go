// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Generation is a policy that runs on at least one device.
type Generation struct {
	Number   int
	Manifest []byte
	Devices  []*Device

	dir     string
	formats map[string]int // the formats of its maps that are not 1
	program *ebpf.Program
	mapped  [][]byte
}

// Has reports whether the generation has a program for a mode.
func (g *Generation) Has(mode Mode) bool {
	_, err := os.Stat(filepath.Join(g.dir, pins[mode]))
	return err == nil
}

// A reader without the lock reads first the links and then the generations. Meanwhile another command may change them in a swap. So the reader
// repeats its reads up to looks times, with lookAgain in between.
const (
	looks     = 10
	lookAgain = 20 * time.Millisecond
)

// Running opens the generations that run, newest first. There is more than one only if an apply died after it had changed some of the devices.
// Running returns ErrNotLoaded if there is none.
func (s *State) Running() ([]*Generation, error) {
	for i := 1; ; i++ {
		running, whole, err := s.look()
		if whole || i == looks || err != nil && !errors.Is(err, ErrNotLoaded) && !errors.Is(err, os.ErrNotExist) {
			return running, err
		}
		CloseAll(running)
		time.Sleep(lookAgain)
	}
}

// look opens the generations that run. whole is true if the program of every device is known.
func (s *State) look() (running []*Generation, whole bool, err error) {
	devices, err := s.devices()
	if err != nil {
		return nil, false, err
	}
	defer closeDevices(devices)
	numbers, err := s.generations()
	if errors.Is(err, os.ErrNotExist) {
		return nil, true, ErrNotLoaded
	}
	if err != nil {
		return nil, false, err
	}
	roles, err := s.roles()
	if err != nil {
		return nil, false, err
	}
	whole = true
	for _, d := range devices {
		r, known := roles[d.program]
		d.Generation = r.now()
		whole = whole && known && (d.Generation == 0 || slices.Contains(numbers, d.Generation))
	}
	if running, err = s.openOn(numbers, devices); err != nil {
		return nil, false, err
	}
	if running == nil {
		err = ErrNotLoaded
	}
	return running, whole, err
}

// openOn opens the generations that decide on at least one of the devices.
func (s *State) openOn(numbers []int, devices []*Device) (running []*Generation, err error) {
	for _, n := range numbers {
		var on []*Device
		for _, d := range devices {
			if d.Generation == n {
				on = append(on, d)
			}
		}
		if on == nil {
			continue
		}
		g, err := s.openGeneration(n, on)
		if err != nil {
			CloseAll(running)
			return nil, err
		}
		running = append(running, g)
	}
	return running, nil
}

// Standby opens the generation to which an unconfirmed trial returns. A change that must last in both cases, such as a ban, must also be made in this
// generation. Standby returns nil without a trial, or if nothing ran before the trial.
func (s *State) Standby() (*Generation, error) {
	t, err := s.Trial()
	if err != nil || t == nil || t.Old == 0 || t.Expired() {
		return nil, err
	}
	g, err := s.openGeneration(t.Old, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the trial was confirmed since then, and the generation replaced
	}
	return g, err
}

// Previous opens the generation to which Rollback would return: the one before the trial, or the one that is kept. It returns nil when there is none.
// The caller must hold the lock.
func (s *State) Previous() (*Generation, error) {
	v, err := s.situation()
	if err != nil {
		return nil, err
	}
	defer v.close()
	n := v.base
	if !v.mixed && n != 0 {
		if n, err = s.before(v.base); err != nil {
			return nil, err
		}
	}
	return s.openWhole(n)
}

// Before opens the generation that was in force when the generation with the given number was installed. Neither of them must run. Before returns nil
// when the earlier one had no program, or is gone. It does not find the remains of an apply that died, because these were never in force. The caller
// must hold the lock.
func (s *State) Before(number int) (*Generation, error) {
	n, err := s.before(number)
	if err != nil {
		return nil, err
	}
	return s.openWhole(n)
}

// openWhole opens the generation with the number n, which may run on no device. It returns nil when the generation is gone or has no program. n is 0
// for none.
func (s *State) openWhole(n int) (*Generation, error) {
	if n == 0 || !s.has(n, pinManifest) || !s.has(n, pinNative) {
		return nil, nil
	}
	return s.openGeneration(n, nil)
}

// Latest opens the generation that ran last. No device need run it: its devices may have gone. Latest returns nil if there is none. The caller must
// hold the lock.
func (s *State) Latest() (*Generation, error) {
	devices, gone, err := s.links()
	if err != nil {
		return nil, err
	}
	defer closeDevices(devices)
	roles, err := s.roles()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	latest := 0
	for _, d := range append(devices, gone...) {
		latest = max(latest, roles[d.program].now())
	}
	numbers, err := s.generations()
	if err != nil {
		return nil, err
	}
	for _, n := range append([]int{latest}, numbers...) {
		g, err := s.openGeneration(n, nil)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return g, err
		}
	}
	return nil, nil
}

func (s *State) openGeneration(n int, on []*Device) (*Generation, error) {
	g := &Generation{Number: n, Devices: on, dir: s.path(generationName(n))}
	var err error
	if g.Manifest, err = readText(g.dir+"/"+pinManifest, pinManifest); err != nil {
		return nil, fmt.Errorf("generation %d: %w", n, err)
	}
	if err := g.readFormats(); err != nil {
		return nil, fmt.Errorf("generation %d: %w", n, err)
	}
	if g.program, err = ebpf.LoadPinnedProgram(g.dir+"/"+pinNative, nil); err != nil {
		return nil, fmt.Errorf("generation %d: %w", n, err)
	}
	return g, nil
}

// CloseAll closes generations.
func CloseAll(generations []*Generation) {
	for _, g := range generations {
		g.Close()
	}
}

// Close closes the descriptors and memory of the generation. The generation continues to run.
func (g *Generation) Close() {
	g.program.Close()
	for _, m := range g.mapped {
		unmap(m)
	}
	g.mapped = nil
}

// ID returns the kernel's ID of the generation's own program.
func (g *Generation) ID() (ebpf.ProgramID, error) {
	id, err := programID(g.program)
	if err != nil {
		return 0, fmt.Errorf("generation %d: %w", g.Number, err)
	}
	return id, nil
}

// Ask runs the generation's own program on a frame. It is the program at tc if all devices run that one, and otherwise the program at XDP. Both have the
// same rules and maps. BPF_PROG_TEST_RUN cannot run the program of a device without a link layer, so the program at XDP answers for such devices. key
// is the question key with which the programs were loaded.
func (g *Generation) Ask(key uint64, frame []byte) (Answer, error) {
	if err := g.Knows(image.Question); err != nil {
		return Answer{}, err
	}
	if !g.isAtTC() {
		return Ask(g.program, key, frame)
	}
	prog, err := ebpf.LoadPinnedProgram(g.dir+"/"+pins[TC], nil)
	if err != nil {
		return Answer{}, fmt.Errorf("generation %d: %w", g.Number, err)
	}
	defer prog.Close()
	return askAtTC(prog, key, Question{Frame: frame})
}

// isAtTC reports whether all devices of the generation run its program at tc, and have a link layer.
func (g *Generation) isAtTC() bool {
	return len(g.Devices) > 0 && !slices.ContainsFunc(g.Devices, func(d *Device) bool { return d.Mode != TC || d.bare })
}

// Memory maps the named maps of the generation into memory, until Close. Maps that the generation does not have are left out.
func (g *Generation) Memory(names ...string) (map[string][]byte, error) {
	memory := map[string][]byte{}
	for _, name := range names {
		m, err := g.pinned(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		shape := image.Shape{ValueSize: m.ValueSize(), Entries: m.MaxEntries()}
		memory[name], err = mapMemory(m, shape.Size())
		m.Close()
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		g.mapped = append(g.mapped, memory[name])
	}
	return memory, nil
}

// Counters opens the map of counters of the newest generation that runs. If none runs, it opens the map of the latest generation. It returns nil when
// there is no generation. Generations share one map until it becomes too small.
func (s *State) Counters() (*ebpf.Map, error) { return s.mapOf((*Generation).Counters) }

// Verified opens the map of verified clients of the same generation. It returns nil when there is none.
func (s *State) Verified() (*ebpf.Map, error) { return s.mapOf((*Generation).verified) }

// mapOf opens a map of the newest generation that runs, or of the latest generation if none runs. It returns nil when there is no generation.
func (s *State) mapOf(open func(*Generation) (*ebpf.Map, error)) (*ebpf.Map, error) {
	running, err := s.Running()
	if err != nil && !errors.Is(err, ErrNotLoaded) {
		return nil, err
	}
	defer CloseAll(running)
	if len(running) > 0 {
		return open(running[0])
	}
	g, err := s.Latest()
	if g == nil || err != nil {
		return nil, err
	}
	defer g.Close()
	return open(g)
}

// Counters opens the map with the generation's counters.
func (g *Generation) Counters() (*ebpf.Map, error) {
	m, err := g.pinned(image.Counters)
	if err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	return m, nil
}

func (g *Generation) verified() (*ebpf.Map, error) { return g.open(image.Verified) }

// Unload detaches the programs from all devices and removes the state. It returns ErrNotLoaded when there was no state. The caller must hold the
// lock.
func (s *State) Unload() error {
	if _, err := os.Stat(s.path(dirLinks)); err != nil {
		return errors.Join(ErrNotLoaded, s.remove())
	}
	devices, err := s.devices()
	errs := []error{err}
	for _, d := range devices {
		errs = append(errs, s.detach(d))
	}
	errs = append(errs, s.remove())
	return errors.Join(errs...)
}
