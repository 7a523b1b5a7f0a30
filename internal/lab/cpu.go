// SPDX-License-Identifier: Apache-2.0

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

// cpuTime is the time that a CPU has spent so far, in ticks of the kernel.
type cpuTime struct{ total, idle, stolen uint64 }

// readCPUTime reads the line of a CPU in /proc/stat (proc(5)). If cpu is negative, it reads the line of all CPUs.
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

// parseCPUTime parses and adds the columns user, nice, system, idle, iowait, irq, softirq and steal.
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

// since returns two shares of the time since before: the share in which the CPU was busy, and the share that the hypervisor stole.
func (t cpuTime) since(before cpuTime) (busy, stolen float64) {
	total := float64(t.total - before.total)
	if total == 0 {
		return 0, 0
	}
	idle, taken := float64(t.idle-before.idle), float64(t.stolen-before.stolen)
	return (total - idle - taken) / total, taken / total
}

// pin limits a thread to one CPU. The pid 0 is the calling thread.
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

// Priorities of threads. On a CPU with a source that never sleeps, receivers and clients need a higher priority than the source.
const (
	// Eager is the priority of an ordinary thread with the greatest weight (sched(7), "nice"). A source that never sleeps lets such clients and
	// receivers run on its CPU, and they never lose the CPU. With real-time priorities they would: if one of these threads never sleeps, the kernel
	// stops all of them for 50 ms of each second (sched(7), sched_rt_runtime_us).
	Eager         = -1
	Ordinary      = 0 // shares the CPU with all processes
	Urgent        = 1 // above ordinary: sources and servers
	MoreUrgent    = 2 // above sources and servers: receivers and clients
	firstReceiver = 3
	MostUrgent    = 4 // above receivers: the reader of the counters at both ends of a measurement, and an operator's command
)

// clientPriority returns the priority of clients. Only few other processes can delay urgent clients.
func clientPriority(urgent bool) int {
	if urgent {
		return MoreUrgent
	}
	return Ordinary
}

// hurry gives a thread a real-time priority, so that it runs before all ordinary threads whenever it is ready. The pid 0 is the calling thread. Nice
// values do not achieve that: a thread that wakes up waits for the end of another thread's time slice, and nice values have no effect between
// sessions (sched(7), SCHED_RR and "the autogroup feature"). The kernel reserves 5% of the CPU for ordinary threads.
func hurry(pid, priority int) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: uint32(priority)}
	if err := unix.SchedSetAttr(pid, &attr, 0); err != nil {
		return fmt.Errorf("priority of thread %d: %w", pid, err)
	}
	return nil
}

// Place limits the calling thread to one CPU, and gives it one of the priorities. Processes that the thread starts later inherit both. The thread
// must be locked to its goroutine.
func Place(cpu, priority int) error {
	if err := pin(0, cpu); err != nil || priority == Ordinary {
		return err
	}
	if priority == Eager {
		return beEager()
	}
	return hurry(0, priority)
}

// greatestWeight is the nice value with the greatest weight.
const greatestWeight = -20

// beEager gives the calling thread and its session the greatest weight. The session must belong to this process.
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

// threadTime has the times of a thread so far (kernel Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat).
type threadTime struct{ ran, waited time.Duration }

// readThreadTime returns two times of a thread: how long it ran, and how long it was ready to run while another thread had its CPU.
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
