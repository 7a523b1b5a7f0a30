// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Trial is a generation that decides until a deadline. After the deadline the previous generation decides again, unless the trial was confirmed. The
// kernel checks the deadline for each packet, so the trial also ends if all processes die.
type Trial struct {
	New, Old int           // numbers of generations; Old is 0 when no policy ran before: nothing is filtered after the deadline
	Deadline time.Duration // time on CLOCK_MONOTONIC

	whole bool // whether every device has the trial's program; if not, an apply died, and the trial cannot be confirmed
}

// Left returns the time until the deadline; it is negative after the deadline.
func (t *Trial) Left() time.Duration { return t.Deadline - image.Monotonic() }

// Expired reports whether the deadline has passed, so that the old generation decides.
func (t *Trial) Expired() bool { return t.Left() <= 0 }

// Deadlines that end a trial on all devices at once. The remaining steps of the change do not affect packets.
const (
	confirmed  = time.Duration(math.MaxInt64)
	rolledBack = time.Duration(0)
)

// onClock converts a time to CLOCK_MONOTONIC, the clock of the deadlines. If the process is delayed during the conversion, the result is too early,
// not too late.
func onClock(t time.Time) time.Duration {
	now := image.Monotonic()
	return now + time.Until(t)
}

// Trial returns the trial that the devices run, which may have expired. It returns nil when there is none.
func (s *State) Trial() (*Trial, error) {
	if numbers, err := s.trialNumbers(); err == nil && len(numbers) == 0 { // the usual case: the devices need not be read
		return nil, nil
	}
	v, err := s.situation()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.close()
	if v.trial == nil || v.trial.Deadline == confirmed {
		return nil, nil
	}
	return v.trial, nil
}

const trialPrefix = "trial-"

// trialName returns the name of the directory of a generation's trial.
func trialName(generation int) string { return trialPrefix + strconv.Itoa(generation) }

// trialNumber is the inverse of trialName.
func trialNumber(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, trialPrefix))
	return n, err == nil && n > 0 && trialName(n) == name
}

// trials lists the trials that have a directory, newest first. It leaves out incomplete ones.
func (s *State) trials() (trials []*Trial, err error) {
	numbers, err := s.trialNumbers()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		t, err := s.readTrial(n)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("trial of generation %d: %w", n, err)
		}
		trials = append(trials, t)
	}
	return trials, nil
}

func (s *State) trialNumbers() ([]int, error) { return s.numbers(trialNumber) }

func (s *State) readTrial(n int) (*Trial, error) {
	term, err := s.openTerm(n)
	if err != nil {
		return nil, err
	}
	defer term.close()
	t := &Trial{New: n, Deadline: time.Duration(term.deadline().Load()), whole: term.whole().Load() != 0}
	t.Old, err = s.before(n)
	return t, err
}

// term is the memory of struct term of bpf/trial.c, which all programs of a trial read.
type term struct{ memory []byte }

const termSize = 16

func (t term) deadline() *atomic.Int64 { return (*atomic.Int64)(unsafe.Pointer(&t.memory[0])) }
func (t term) whole() *atomic.Int64    { return (*atomic.Int64)(unsafe.Pointer(&t.memory[8])) }

func (t term) close() { unmap(t.memory) }

func (s *State) openTerm(n int) (term, error) {
	m, err := ebpf.LoadPinnedMap(s.path(trialName(n), pinTerm), nil)
	if err != nil {
		return term{}, err
	}
	defer m.Close()
	return mapTerm(m)
}

func mapTerm(m *ebpf.Map) (term, error) {
	memory, err := mapMemory(m, termSize)
	return term{memory}, err
}

// setDeadline sets the deadline of the trial of a generation.
func (s *State) setDeadline(n int, deadline time.Duration) error {
	term, err := s.openTerm(n)
	if err != nil {
		return fmt.Errorf("trial of generation %d: %w", n, err)
	}
	defer term.close()
	term.deadline().Store(int64(deadline))
	return nil
}

// variant selects one of the programs of a trial, by the mode of a device, and by whether the new and the old generation have the device.
type variant struct {
	mode     Mode
	has, had bool
}

var variants = func() (list []variant) {
	for _, mode := range ownModes {
		list = append(list, variant{mode, true, true}, variant{mode, true, false}, variant{mode, false, true})
	}
	return list
}()

func (v variant) pin() string {
	name := map[variant]string{
		{has: true, had: true}: "kept", {has: true}: "added", {had: true}: "dropped",
	}[variant{has: v.has, had: v.had}]
	return name + suffix(v.mode)
}

// suffix returns the suffix of the names of programs for a mode or a side. It is "" for native mode.
func suffix(mode Mode) string {
	switch mode {
	case Native:
		return ""
	case Generic:
		return "_linear"
	}
	return "_" + string(mode)
}

// role returns the role of a variant in a trial.
func (v variant) role(t *Trial) role {
	r := role{trial: t}
	if v.has {
		r.during = t.New
	}
	if v.had {
		r.after = t.Old
	}
	return r
}
