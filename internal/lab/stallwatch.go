package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
