package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/xdp"
)

// Generation is a policy that runs on at least one device.
type Generation struct {
	Number   int
	Manifest []byte
	Devices  []*Device

	dir     string
	program *ebpf.Program
	mapped  [][]byte
}

// Running opens the generations that run, newest first: one, unless an apply died while it went from device to device.
// It returns ErrNotLoaded when there is none.
func (s *State) Running() ([]*Generation, error) {
	devices, err := s.devices()
	if err != nil {
		return nil, err
	}
	defer closeDevices(devices)
	numbers, err := s.generations()
	if err != nil {
		return nil, err
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	var running []*Generation
	for _, n := range numbers {
		var on []*Device
		for _, d := range devices {
			if runsOn(s, n, []*Device{d}) {
				d.Generation = n
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
	if running == nil {
		return nil, ErrNotLoaded
	}
	return running, nil
}

func (s *State) openGeneration(n int, on []*Device) (*Generation, error) {
	g := &Generation{Number: n, Devices: on, dir: s.path(generationName(n))}
	var err error
	if g.Manifest, err = readManifest(g.dir); err != nil {
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

// Close gives up what was opened. The generation goes on running.
func (g *Generation) Close() {
	g.program.Close()
	for _, m := range g.mapped {
		unix.Munmap(m[:cap(m)])
	}
	g.mapped = nil
}

// Ask runs the generation's own program on a frame. key is the question key it was loaded with.
func (g *Generation) Ask(key uint64, frame []byte) (Answer, error) { return Ask(g.program, key, frame) }

// Memory maps the named maps of the generation, until Close. A map that the generation does not have is left out.
func (g *Generation) Memory(names ...string) (map[string][]byte, error) {
	memory := map[string][]byte{}
	for _, name := range names {
		m, err := ebpf.LoadPinnedMap(g.dir+"/"+pinName(name), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		shape := xdp.Shape{ValueSize: m.ValueSize(), Entries: m.MaxEntries()}
		memory[name], err = mapMemory(m, shape.Octets())
		m.Close()
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		g.mapped = append(g.mapped, memory[name])
	}
	return memory, nil
}

// Counters opens the map of counters of the instance, nil when there is none yet.
func (s *State) Counters() (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(s.path(xdp.Counters), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return m, err
}

// Unload detaches from all devices and removes the state. It returns ErrNotLoaded when there was none. The caller holds
// the lock.
func (s *State) Unload() error {
	if _, err := os.Stat(s.path("links")); err != nil {
		return errors.Join(ErrNotLoaded, os.RemoveAll(s.dir))
	}
	devices, err := s.devices()
	errs := []error{err}
	for _, d := range devices {
		errs = append(errs, s.detach(d))
	}
	errs = append(errs, os.RemoveAll(s.dir))
	return errors.Join(errs...)
}
