package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/internal/xdp"
)

// A generation with a guard has one more program, for what leaves the devices. It is attached at the tc hook (TCX), after
// the XDP program, changes after it, and is released before it: so whoever finds the one link of a device finds the
// other. During a trial a program of bpf/trial.c is in its place too, which asks the same deadline.

// leaving stands among the modes for the program that sees what leaves. Nothing is attached in that mode alone.
const leaving Mode = "egress"

const (
	dirEgress = "egress"         // in the state directory: the links, by the number of the device
	pinEgress = "program_egress" // in that of a generation, when it has such a program
)

// EgressSupported returns an error when the kernel has no hook for what leaves that programs can be attached to as to
// XDP: one that goes on without a process, and changes its program at one moment.
func EgressSupported() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "probe", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("program for what leaves: %w", err)
	}
	defer prog.Close()
	const nowhere = 0 // no device has this number: a kernel that knows TCX says so
	_, err = link.AttachTCX(link.TCXOptions{Interface: nowhere, Program: prog, Attach: ebpf.AttachTCXEgress})
	if errors.Is(err, link.ErrNotSupported) {
		return errors.New("the kernel has no TCX, which Linux has since 6.6")
	}
	return nil
}

// Egress is the program for what leaves, nil when the image has none.
func (p *Program) Egress() *ebpf.Program { return p.collection.Programs[xdp.Egress] }

func (s *State) egressPin(d *Device) string { return s.path(dirEgress, strconv.Itoa(d.ifindex)) }

// openEgress opens the link at the tc hook of a device, if it has one. One that another device had, which has gone or
// has moved, is none.
func (s *State) openEgress(d *Device) error {
	l, err := link.LoadPinnedLink(s.egressPin(d), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := l.Info()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	there, err := link.QueryPrograms(link.QueryOptions{Target: d.ifindex, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ours := func(p link.AttachedProgram) bool { id, ok := p.LinkID(); return ok && id == info.ID }
	if !slices.ContainsFunc(there.Programs, ours) {
		return l.Close()
	}
	d.egress, d.egressProgram = l, info.Program
	return nil
}

// setEgress gives a device a program for what leaves, nil for none.
func (s *State) setEgress(d *Device, prog *ebpf.Program) error {
	switch {
	case prog == nil:
		return s.releaseEgress(d)
	case d.egress == nil:
		return s.attachEgress(d, prog)
	}
	if err := d.egress.Update(prog); err != nil {
		return fmt.Errorf("updating what device %s sends: %w", d.Name, err)
	}
	return nil
}

func (s *State) attachEgress(d *Device, prog *ebpf.Program) error {
	explain := func(err error) error { return fmt.Errorf("attaching to what device %s sends: %w", d.Name, err) }
	if err := os.MkdirAll(s.path(dirEgress), 0o700); err != nil {
		return explain(err)
	}
	if err := removeUnused(s.egressPin(d)); err != nil { // of a device that had the number before
		return explain(err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: d.ifindex, Program: prog, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return explain(err)
	}
	if err := l.Pin(s.egressPin(d)); err != nil {
		return errors.Join(explain(err), l.Close())
	}
	d.egress = l
	return nil
}

// releaseEgress detaches a device from its program for what leaves, if it has one.
func (s *State) releaseEgress(d *Device) error {
	if d.egress == nil {
		return nil
	}
	err := errors.Join(d.egress.Detach(), os.Remove(s.egressPin(d)), d.egress.Close())
	d.egress = nil
	return err
}

// sweepEgress removes the links of all but these devices.
func (s *State) sweepEgress(devices []*Device) error {
	entries, err := os.ReadDir(s.path(dirEgress))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		path := s.path(dirEgress, e.Name())
		if !slices.ContainsFunc(devices, func(d *Device) bool { return d.egress != nil && s.egressPin(d) == path }) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// updateEgress gives a device of the swap what it takes for what leaves. A device that is to have none any more keeps its
// program until the swap can no more be undone.
func (s *swap) updateEgress(d *Device, has, had bool) error {
	prog, err := s.egressFor(has, had)
	if err != nil {
		return err
	}
	if prog == nil {
		s.silent = append(s.silent, d)
		return nil
	}
	return s.state.setEgress(d, prog)
}

// egressFor is the program for what leaves a device that the new and the old generation have, or have not; nil for none.
func (s *swap) egressFor(has, had bool) (*ebpf.Program, error) {
	if s.trial == nil {
		return s.code.program(leaving)
	}
	v := variant{leaving, has, had}
	if runs, err := s.trial.runs(v); !runs || err != nil {
		return nil, err
	}
	return s.trial.program(v)
}

// restoreEgress gives a device back what it had for what leaves when the swap began.
func (s *swap) restoreEgress(d *Device) error {
	if d.egressProgram == 0 {
		return s.state.releaseEgress(d)
	}
	prog, err := ebpf.NewProgramFromID(d.egressProgram)
	if err != nil {
		return fmt.Errorf("restoring what device %s sends: %w", d.Name, err)
	}
	defer prog.Close()
	return s.state.setEgress(d, prog)
}

// finishEgress releases devices for which the new generation has no program for what leaves, and removes the links of
// those that have gone.
func (s *swap) finishEgress() (err error) {
	for _, d := range s.silent {
		err = errors.Join(err, s.state.releaseEgress(d))
	}
	return errors.Join(err, s.state.sweepEgress(s.done()))
}
