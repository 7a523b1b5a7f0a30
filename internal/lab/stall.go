// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Stall is a time in which a CPU did not run a thread with the highest priority on it. Linux does not interrupt its own work for a thread unless it
// was built to (CONFIG_PREEMPT; not with PREEMPT_NONE and PREEMPT_VOLUNTARY). So a stall is mostly the time in which the kernel continued with other
// work.
type Stall struct {
	CPU  int
	Due  time.Duration // when the thread should have run, by CLOCK_MONOTONIC
	Late time.Duration // the delay of the thread

	// Waited is the part of Late in which the kernel knew that the thread was due (schedstat): another thread had the CPU. In the rest not even the
	// timer's interrupt was handled: interrupts were off, or a hypervisor ran another machine on the CPU.
	Waited time.Duration

	// Holder is the kernel's name (15 bytes at most) of the thread that had the CPU at the end; "" if it is unknown.
	Holder string
}

// LeastStall is the shortest delay that counts as a stall. Without a stall, a timer wakes a thread some 50 µs late.
const LeastStall = 100 * time.Microsecond

// Stalls watches CPUs for stalls until Stop is called.
type Stalls struct {
	cancel  context.CancelFunc
	done    sync.WaitGroup
	release []func() error

	mu     sync.Mutex
	wakes  sync.Cond             // signals changes of passed; uses mu
	passed map[int]time.Duration // by CPU: all stalls that ended before this time are in all
	all    []Stall
	errs   []error
}

// WatchStalls starts watching CPUs, with a separate process in the host for each CPU. The processes use some hundredths of a CPU. It returns when all
// of them watch.
func (h *Host) WatchStalls(ctx context.Context, cpus ...int) (*Stalls, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &Stalls{cancel: cancel, passed: map[int]time.Duration{}}
	w.wakes.L = &w.mu
	files, err := w.noteHolders()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stall watch: %w", err), w.Stop())
	}
	watching := make(chan error, len(cpus))
	for _, cpu := range cpus {
		w.passed[cpu] = 0
		w.done.Go(func() {
			defer w.pass(cpu, math.MaxInt64)
			r := role{name: stallName, cpu: cpu, priority: MostUrgent, input: stallWatch{cpu, len(files) > 0}, files: files}
			watches := false
			err := follow(ctx, h, r, func(s Stall) {
				if !watches { // the first report means that the process watches
					watches = true
					watching <- nil
					return
				}
				if s.Late > 0 {
					w.add(s)
				}
				w.pass(cpu, s.Due+s.Late)
			})
			if ctx.Err() == nil {
				w.fail(fmt.Errorf("stall watch: CPU %d: %w", cpu, err))
			}
			if !watches {
				watching <- fmt.Errorf("stall watch does not watch: %w", err)
			}
		})
	}
	for range cpus {
		err = errors.Join(err, <-watching)
	}
	if err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

// noteHolders makes the kernel record the thread that had a CPU before a watching thread gets it. The file is the map of these records. Kernels
// without a description of themselves (CONFIG_DEBUG_INFO_BTF) have no records.
func (w *Stalls) noteHolders() (files []*os.File, err error) {
	spec, err := loadStall()
	if err != nil {
		return nil, err
	}
	var name stallHolder
	copy(name.Name[:], watchName)
	if err := spec.Variables[stallVarWatching].Set(name); err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollection(spec)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w.release = append(w.release, func() error { collection.Close(); return nil })
	attached, err := link.AttachTracing(link.TracingOptions{Program: collection.Programs[stallProgNoteHolder]})
	if err != nil {
		return nil, err
	}
	w.release = append(w.release, attached.Close)
	fd, err := unix.FcntlInt(uintptr(collection.Maps[stallMapHolders].FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), stallMapHolders)
	w.release = append(w.release, file.Close)
	return []*os.File{file}, nil
}

func (w *Stalls) add(s Stall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, s)
}

// pass records a time for a CPU. All stalls of the CPU that ended before this time are known.
func (w *Stalls) pass(cpu int, at time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed[cpu] = at
	w.wakes.Broadcast()
}

func (w *Stalls) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, err)
}

// Between returns the stalls that started at or after from, and before to, both by CLOCK_MONOTONIC. The time to must be in the past. It waits for the
// reports of all watches that have not ended.
func (w *Stalls) Between(from, to time.Duration) (between []Stall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cpu := range slices.Collect(maps.Keys(w.passed)) {
		for w.passed[cpu] < to {
			w.wakes.Wait()
		}
	}
	for _, s := range w.all {
		if s.Due >= from && s.Due < to {
			between = append(between, s)
		}
	}
	return between
}

// Stop ends the watch. If a part of the watch ended before, Stop returns its error.
func (w *Stalls) Stop() error {
	w.cancel()
	w.done.Wait()
	for _, release := range w.release {
		w.errs = append(w.errs, release())
	}
	w.release = nil
	return errors.Join(w.errs...)
}

// Now returns the time of CLOCK_MONOTONIC, as in stalls.
func Now() (time.Duration, error) { return now() }
