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

// Trial is a generation that decides until a deadline, and then leaves the devices to the one before, unless it is
// confirmed. The kernel keeps the deadline, for each packet, so it holds whatever becomes of all processes.
type Trial struct {
	New, Old int           // generations; Old is 0 when no policy ran before: then nothing is filtered after the deadline
	Deadline time.Duration // on CLOCK_MONOTONIC, since its zero

	whole bool // every device has its program: an apply that died has left nothing that could be confirmed
}

// Left is the time until the deadline, negative after it.
func (t *Trial) Left() time.Duration { return t.Deadline - image.Monotonic() }

// Expired reports whether the deadline has passed, so that the old generation decides.
func (t *Trial) Expired() bool { return t.Left() <= 0 }

// Deadlines that end a trial on all devices at once. What else is to be done then changes nothing for packets.
const (
	confirmed  = time.Duration(math.MaxInt64)
	rolledBack = time.Duration(0)
)

// onClock is a time on the clock that deadlines are on. A process that has to wait in between gets an
// earlier time, and not a later one.
func onClock(t time.Time) time.Duration {
	now := image.Monotonic()
	return now + time.Until(t)
}

// Trial returns the trial that the devices run, expired or not, or nil when there is none.
func (s *State) Trial() (*Trial, error) {
	if numbers, err := s.trialNumbers(); err == nil && len(numbers) == 0 { // as nearly always: no device need be looked at
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

// trialName is the directory of the trial of a generation.
func trialName(generation int) string { return trialPrefix + strconv.Itoa(generation) }

// trialNumber is the n of trialName(n).
func trialNumber(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, trialPrefix))
	return n, err == nil && n > 0 && trialName(n) == name
}

// trials lists the trials that have a directory, newest first. Incomplete ones are left out.
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

// term is the memory of struct term of bpf/trial.c, which all programs of a trial look at.
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

// setDeadline ends the trial of a generation, one way or the other.
func (s *State) setDeadline(n int, deadline time.Duration) error {
	term, err := s.openTerm(n)
	if err != nil {
		return fmt.Errorf("trial of generation %d: %w", n, err)
	}
	defer term.close()
	term.deadline().Store(int64(deadline))
	return nil
}

// variant is one of the programs of a trial: for the devices of one mode, and whether the new generation and the old
// one have them.
type variant struct {
	mode     Mode
	has, had bool
}

var variants = []variant{
	{Native, true, true}, {Native, true, false}, {Native, false, true},
	{Generic, true, true}, {Generic, true, false}, {Generic, false, true},
}

func (v variant) pin() string {
	name := map[variant]string{
		{has: true, had: true}: "kept", {has: true}: "added", {had: true}: "dropped",
	}[variant{has: v.has, had: v.had}]
	return name + suffix(v.mode)
}

// suffix tells the names of what generic mode takes from those of native mode.
func suffix(mode Mode) string {
	return map[Mode]string{Generic: "_linear", entering: "_ingress", leaving: "_egress"}[mode]
}

// role is what a variant stands for in a trial.
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
