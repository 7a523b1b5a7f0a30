package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what a CPU did with its time so far, in the kernel's ticks.
type cpuTime struct{ total, idle, stolen uint64 }

// readCPUTime reads the line of one CPU in /proc/stat, or with cpu below 0 that of all (proc(5)).
func readCPUTime(cpu int) (t cpuTime, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, fmt.Errorf("cpu time: %w", err)
	}
	name := "cpu"
	if cpu >= 0 {
		name += strconv.Itoa(cpu)
	}
	for line := range strings.Lines(string(stat)) {
		if f := strings.Fields(line); len(f) > 8 && f[0] == name {
			return parseCPUTime(f[1:9])
		}
	}
	return t, fmt.Errorf("cpu time: no %s in /proc/stat", name)
}

// parseCPUTime adds up user, nice, system, idle, iowait, irq, softirq and steal.
func parseCPUTime(fields []string) (t cpuTime, err error) {
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return t, fmt.Errorf("cpu time: %w", err)
		}
		t.total += n
		switch i {
		case 3, 4:
			t.idle += n
		case 7:
			t.stolen = n
		}
	}
	return t, nil
}

// since returns the shares of the time since before that the CPU was busy, and that was stolen.
func (t cpuTime) since(before cpuTime) (busy, stolen float64) {
	total := float64(t.total - before.total)
	if total == 0 {
		return 0, 0
	}
	idle, taken := float64(t.idle-before.idle), float64(t.stolen-before.stolen)
	return (total - idle - taken) / total, taken / total
}

// pin keeps a thread (0: the caller's) on one CPU.
func pin(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	err := unix.SchedSetaffinity(pid, &set)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("pin thread %d to CPU %d: this machine has no such CPU", pid, cpu)
	}
	if err != nil {
		return fmt.Errorf("pin thread %d to CPU %d: %w", pid, cpu, err)
	}
	return nil
}

// Priorities of threads. A receiver goes before a source on the same CPU, which never sleeps, and clients go before it too.
const (
	// Eager is an ordinary thread of the greatest weight that those can have (sched(7), "nice"). A source that never sleeps
	// leaves the CPU to clients and receivers on it, and these never lose it: of threads with a real priority, one that
	// never sleeps has the kernel stop all of them for 50 ms of each second (sched(7), sched_rt_runtime_us).
	Eager         = -1
	Ordinary      = 0 // shares a CPU with all processes
	Urgent        = 1 // before those: sources and servers
	MoreUrgent    = 2 // before sources and servers too: receivers and clients
	firstReceiver = 3
	MostUrgent    = 4 // before receivers: who reads the counters at both ends of a measurement, and an operator's command
)

// clientPriority is that of clients, which few other processes keep from their CPU when they are urgent.
func clientPriority(urgent bool) int {
	if urgent {
		return MoreUrgent
	}
	return Ordinary
}

// hurry has a thread (0: the caller's) run whenever it can, before all ordinary threads. Ordinary priorities do not do
// that: a thread that wakes up waits for the other's time slice to end, and between sessions they do not count at all
// (sched(7), SCHED_RR and "the autogroup feature"). The kernel keeps 5% of the CPU for ordinary threads.
func hurry(pid, priority int) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: uint32(priority)}
	if err := unix.SchedSetAttr(pid, &attr, 0); err != nil {
		return fmt.Errorf("priority of thread %d: %w", pid, err)
	}
	return nil
}

// Place keeps the calling thread, which must be locked, on one CPU with one of the priorities, and with it the processes
// that it starts from now on.
func Place(cpu, priority int) error {
	if err := pin(0, cpu); err != nil || priority == Ordinary {
		return err
	}
	if priority == Eager {
		return beEager()
	}
	return hurry(0, priority)
}

// greatestWeight is the nice value of the greatest weight.
const greatestWeight = -20

// beEager gives the calling thread and the session, which must be the process's own, the greatest weight.
func beEager() error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, greatestWeight); err != nil {
		return fmt.Errorf("weight: %w", err)
	}
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(greatestWeight)), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("weight of the session: %w", err)
	}
	return nil
}

// threadTime is what a thread did so far (kernel Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat).
type threadTime struct{ ran, waited time.Duration }

// readThreadTime returns how long a thread ran, and how long it could have but another had its CPU.
func readThreadTime(pid int) (t threadTime, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return t, fmt.Errorf("thread time: %w", err)
	}
	if _, err := fmt.Sscan(string(stat), &t.ran, &t.waited); err != nil {
		return t, fmt.Errorf("thread time: %w", err)
	}
	return t, nil
}
