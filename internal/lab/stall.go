package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Stall is a time in which a CPU did not run a thread that goes before all others on it. Linux does not interrupt its own work for a thread
// unless it was built to (CONFIG_PREEMPT; not with PREEMPT_NONE and PREEMPT_VOLUNTARY), so that is mostly how long the kernel went on with
// something else.
type Stall struct {
	CPU  int
	Due  time.Duration // when the thread should have run, of CLOCK_MONOTONIC
	Late time.Duration // how much later it did

	// Waited is the part of Late in which the kernel knew that the thread was due (schedstat): something else had the CPU. In the rest not even
	// the timer's interrupt was taken: interrupts were off, or a hypervisor ran another machine on the CPU.
	Waited time.Duration

	// Holder is the name of the thread that had the CPU at the end, as the kernel has it (15 bytes at most); "" when that is not known.
	Holder string
}

// LeastStall is from which delay on there is a stall. A timer wakes a thread later than it should by some 50 µs.
const LeastStall = 100 * time.Microsecond

// Stalls watches CPUs for stalls until Stop.
type Stalls struct {
	cancel  context.CancelFunc
	done    sync.WaitGroup
	release []func() error

	mu     sync.Mutex
	wakes  sync.Cond             // of mu: passed has changed
	passed map[int]time.Duration // by CPU: stalls that were over then are in all
	all    []Stall
	errs   []error
}

// WatchStalls begins to watch CPUs, each with a process of its own in the host. They take some hundredths of a CPU. It returns when all of them
// watch.
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
		out, in := io.Pipe()
		w.done.Go(func() { w.follow(cpu, out, watching) })
		w.done.Go(func() {
			_, err := h.play(ctx, role{name: stallName, cpu: cpu, priority: MostUrgent, input: stallWatch{cpu, len(files) > 0}, files: files, output: in})
			if ctx.Err() == nil {
				w.fail(fmt.Errorf("stall watch: CPU %d: %w", cpu, err))
			}
			in.Close()
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

// noteHolders has the kernel note which thread has a CPU when one that watches gets it. The file is where. There is none on a kernel that does
// not describe itself (CONFIG_DEBUG_INFO_BTF).
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

// follow reads what the process of a CPU writes, to its end. Its first line says that it watches.
func (w *Stalls) follow(cpu int, out io.Reader, watching chan<- error) {
	defer w.pass(cpu, math.MaxInt64)
	reports := json.NewDecoder(out)
	var first Stall
	if err := reports.Decode(&first); err != nil {
		watching <- fmt.Errorf("stall watch does not watch: %w", err)
		return
	}
	watching <- nil
	for {
		var s Stall
		if reports.Decode(&s) != nil { // it was killed, maybe in the middle of a line
			return
		}
		if s.Late > 0 {
			w.add(s)
		}
		w.pass(cpu, s.Due+s.Late)
	}
}

func (w *Stalls) add(s Stall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, s)
}

// pass notes that all stalls of a CPU are known that were over at a time.
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

// Between returns the stalls that began from one time of CLOCK_MONOTONIC on and before another one, which is over. It waits for the reports of
// all watches that have not ended.
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

// Stop ends the watch. It returns why a part of it ended before, if one did.
func (w *Stalls) Stop() error {
	w.cancel()
	w.done.Wait()
	for _, release := range w.release {
		w.errs = append(w.errs, release())
	}
	w.release = nil
	return errors.Join(w.errs...)
}

// Now is the time of CLOCK_MONOTONIC, as in stalls.
func Now() (time.Duration, error) { return now() }
