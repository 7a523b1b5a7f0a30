// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

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

// Now returns the time of CLOCK_MONOTONIC, the clock of Stall.
func Now() (time.Duration, error) { return now() }

// The names under which this program runs as a process that watches a CPU for stalls: its own name, and the kernel's.
const (
	stallName = "floodwall-stall"
	watchName = "floodwall-stall"
)

// stallTick is the interval at which the watch wakes up on its CPU.
const stallTick = 200 * time.Microsecond

// stallSign is the longest time between two reports of the watch.
const stallSign = 5 * time.Millisecond

// stallFile is the descriptor of the map of holders in this process: the first after the standard ones.
const stallFile = 3

// stallWatch is the input of the process.
type stallWatch struct {
	CPU     int
	Holders bool // it has the map
}

// stallMain watches its CPU until it is killed. It makes raw system calls, so Go's runtime cannot delay their return.
func stallMain() error {
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	var o stallWatch
	if err := readInput(&o); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/self/comm", []byte(watchName), 0); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	stat, err := os.Open(fmt.Sprintf("/proc/self/task/%d/schedstat", unix.Gettid()))
	if err != nil {
		return err
	}
	holder, err := o.holder()
	if err != nil {
		return err
	}
	return o.watch(stat, holder)
}

// holder returns a function that reads the name of the thread that had the CPU before.
func (o stallWatch) holder() (func() string, error) {
	if !o.Holders {
		return func() string { return "" }, nil
	}
	size := int(unsafe.Sizeof(stallHolder{}))
	memory, err := unix.Mmap(stallFile, 0, (o.CPU+1)*size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map of holders: %w", err)
	}
	return func() string {
		name, _, _ := strings.Cut(string(memory[o.CPU*size:]), "\x00")
		return name
	}, nil
}

// watch wakes up at each tick, and reports delays. A report without a delay means that all delays until then were reported.
func (o stallWatch) watch(stat *os.File, holder func() string) error {
	out := json.NewEncoder(os.Stdout)
	due, err := now()
	err = errors.Join(err, out.Encode(Stall{CPU: o.CPU}))
	waited, sign := waitedSoFar(stat), due
	for err == nil {
		due += stallTick
		wakeAt(due)
		var at time.Duration
		if at, err = now(); err != nil {
			break
		}
		before := waited
		waited = waitedSoFar(stat)
		late := at - due
		if late < LeastStall && at-sign < stallSign {
			continue
		}
		sign = at
		if late < LeastStall {
			err = out.Encode(Stall{CPU: o.CPU, Due: due})
		} else {
			err = out.Encode(Stall{CPU: o.CPU, Due: due, Late: late, Waited: min(waited-before, late), Holder: holder()})
			due, waited = max(due, at), waitedSoFar(stat)
		}
	}
	return err
}

// wakeAt sleeps until a time of CLOCK_MONOTONIC.
func wakeAt(due time.Duration) {
	until := unix.NsecToTimespec(int64(due))
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&until)), 0, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}

// waitedSoFar reads how long the thread was ready to run while another thread had the CPU: the second number of schedstat (kernel
// Documentation/scheduler/sched-stats.rst). It is 0 if the kernel does not count this time.
func waitedSoFar(stat *os.File) time.Duration {
	var text [96]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, stat.Fd(), uintptr(unsafe.Pointer(&text)), uintptr(len(text)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	var ran, waited time.Duration
	if _, err := fmt.Sscan(string(text[:n]), &ran, &waited); err != nil {
		return 0
	}
	return waited
}
