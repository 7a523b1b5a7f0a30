// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Names in the directory of a trial, besides the names of variants.
const (
	pinTerm  = "term"
	pinArray = "generations"
)

// The programs of bpf/trial.c.
const (
	trialProgram = "floodwall_trial"
	trialSuffix  = "_trial" // after the name of a side
)

// IngressTrial is the name of the program that handles packets passed by XDP during a trial.
const IngressTrial = image.Ingress + trialSuffix

// The slots of the array of programs: enum slot of bpf/trial.c.
const (
	slotNew uint32 = iota
	slotOld
	slotNone
)

// trialCode makes the programs that devices run during a trial. It loads and pins each program on first use.
type trialCode struct {
	dir      string
	ends     time.Time
	new, old *code // old is nil when there is none
	standIn  bool  // use native programs in generic mode: the old generation has no other, and an array has programs of one kind only
	term     *ebpf.Map
	arrays   map[Mode]*ebpf.Map
	programs map[variant]*ebpf.Program
}

// newTrial creates the directory of a trial with the deadline ends.
func (s *State) newTrial(ends time.Time, next, old *code) (_ *trialCode, err error) {
	c := &trialCode{
		dir: s.path(trialName(next.number)), ends: ends, new: next, old: old,
		arrays: map[Mode]*ebpf.Map{}, programs: map[variant]*ebpf.Program{},
		standIn: old != nil && !s.has(old.number, pinLinear),
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	spec, err := loadTrial()
	if err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	if c.term, err = ebpf.NewMap(spec.Maps["term"]); err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	if err := pinMap(c.term, c.dir+"/"+pinTerm); err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	return c, nil
}

// begin sets the deadline of the trial.
func (c *trialCode) begin() error {
	return c.note(func(t term) { t.deadline().Store(int64(onClock(c.ends))) })
}

// complete records that every device has its program.
func (c *trialCode) complete() error {
	return c.note(func(t term) { t.whole().Store(1) })
}

func (c *trialCode) note(what func(term)) error {
	term, err := mapTerm(c.term)
	if err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	defer term.close()
	what(term)
	return nil
}

// program returns the program that a device runs during the trial. It is valid until close.
func (c *trialCode) program(v variant) (*ebpf.Program, error) {
	if prog := c.programs[v]; prog != nil {
		return prog, nil
	}
	spec, err := loadTrial()
	if err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	array, err := c.array(v.mode, spec)
	if err != nil {
		return nil, err
	}
	for constant, slot := range map[string]uint32{"during": slotNew, "after": slotOld} {
		if constant == "during" && !v.has || constant == "after" && !v.had {
			slot = slotNone
		}
		if err := spec.Variables[constant].Set(slot); err != nil {
			return nil, fmt.Errorf("trial: %w", err)
		}
	}
	if err := c.fill(array, v); err != nil {
		return nil, err
	}
	if v.mode == Generic && !c.standIn {
		spec.Programs[trialProgram].Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	}
	return c.load(v, spec, array)
}

// runs reports whether at least one generation has a program for a variant. There may be none for a side.
func (c *trialCode) runs(v variant) (bool, error) {
	var has, had *ebpf.Program
	var err error
	if v.has {
		has, err = c.new.program(v.mode)
	}
	if v.had && err == nil {
		had, err = c.old.program(v.mode)
	}
	return has != nil || had != nil, err
}

// array returns the array of programs for a mode.
func (c *trialCode) array(mode Mode, spec *ebpf.CollectionSpec) (*ebpf.Map, error) {
	if m := c.arrays[mode]; m != nil {
		return m, nil
	}
	m, err := ebpf.NewMap(spec.Maps["generations"])
	if err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	c.arrays[mode] = m
	if err := pinMap(m, c.dir+"/"+pinArray+suffix(mode)); err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	return m, nil
}

// fill puts the programs of the variant's generations into their slots of the array.
func (c *trialCode) fill(array *ebpf.Map, v variant) error {
	mode := v.mode
	if mode == Generic && c.standIn {
		mode = Native
	}
	put := func(slot uint32, from *code) error {
		if mode != v.mode && from.fresh != nil { // load the program that the device runs after the trial is confirmed
			if _, err := from.program(v.mode); err != nil {
				return err
			}
		}
		prog, err := from.program(mode)
		if prog == nil || err != nil {
			return err
		}
		if err := array.Put(slot, prog); err != nil {
			return fmt.Errorf("trial: generation %d: %w", from.number, err)
		}
		return nil
	}
	if v.has {
		if err := put(slotNew, c.new); err != nil {
			return err
		}
	}
	if v.had {
		return put(slotOld, c.old)
	}
	return nil
}

// trialProgramFor returns the name of the program of bpf/trial.c for a mode, or for a side of a device (sides.go).
func trialProgramFor(mode Mode) string {
	switch mode = mode.withLink(); {
	case isSide(mode):
		return string(mode) + trialSuffix
	case mode == TC:
		return IngressTrial
	}
	return trialProgram
}

func (c *trialCode) load(v variant, spec *ebpf.CollectionSpec, array *ebpf.Map) (*ebpf.Program, error) {
	name := trialProgramFor(v.mode)
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	spec.Programs[name].Name = image.Program + "_try" // of a name with 15 bytes, ebpf.ProgramInfo reads the rest from BTF
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"generations": array, "term": c.term},
	})
	if err != nil {
		return nil, explainLoad(err)
	}
	defer collection.Close()
	prog := collection.DetachProgram(name)
	c.programs[v] = prog
	if err := pinClone(prog, c.dir+"/"+v.pin()); err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	return prog, nil
}

// close closes the file descriptors. Pinned programs and maps stay.
func (c *trialCode) close() {
	if c.term != nil {
		c.term.Close()
	}
	for _, m := range c.arrays {
		m.Close()
	}
	for _, prog := range c.programs {
		prog.Close()
	}
}
