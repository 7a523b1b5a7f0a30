package datapath

import (
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Names in the directory of a trial, besides those of variants.
const (
	pinTerm  = "term"
	pinArray = "generations"
)

// The programs of bpf/trial.c.
const (
	trialProgram = "floodwall_trial"
	trialSuffix  = "_trial" // behind the name of a side
)

// IngressTrial is the name of the program for packets that XDP has passed, during a trial.
const IngressTrial = image.Ingress + trialSuffix

// The slots of the array of programs, enum slot of bpf/trial.c.
const (
	slotNew uint32 = iota
	slotOld
	slotNone
)

// trialCode makes the programs that devices run during a trial. Each is loaded and pinned when first asked for.
type trialCode struct {
	dir      string
	ends     time.Time
	new, old *code // old is nil when there is none
	standIn  bool  // in generic mode both run what is for native mode: the old one has nothing else, and an array takes programs of one kind
	term     *ebpf.Map
	arrays   map[Mode]*ebpf.Map
	programs map[variant]*ebpf.Program
}

// newTrial makes the directory of a trial with this deadline.
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

// begin sets the deadline.
func (c *trialCode) begin() error {
	return c.note(func(t term) { t.deadline().Store(int64(onClock(c.ends))) })
}

// complete notes that every device has its program.
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

// program is what a device runs during the trial, valid until close.
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

// runs reports whether a variant runs any generation: one may have no program for a side.
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

// array is the array of programs for a mode.
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

// fill puts the generations that a variant runs in their slots.
func (c *trialCode) fill(array *ebpf.Map, v variant) error {
	mode := v.mode
	if mode == Generic && c.standIn {
		mode = Native
	}
	put := func(slot uint32, from *code) error {
		if mode != v.mode && from.fresh != nil { // what runs once it is confirmed
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

func (c *trialCode) load(v variant, spec *ebpf.CollectionSpec, array *ebpf.Map) (*ebpf.Program, error) {
	name := trialProgram
	if isSide(v.mode) {
		name = string(v.mode) + trialSuffix
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
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

// close gives up the file descriptors. What is pinned stays.
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
