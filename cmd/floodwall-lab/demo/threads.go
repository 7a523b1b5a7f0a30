// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// cpuPair returns two CPUs of this process. The first sends the flood, and the server's packets arrive on the second.
func cpuPair() (source, receiver int, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, 0, fmt.Errorf("affinity: %w", err)
	}
	var pair []int
	for cpu := 0; len(pair) < min(2, allowed.Count()); cpu++ {
		if allowed.IsSet(cpu) {
			pair = append(pair, cpu)
		}
	}
	if len(pair) < 2 {
		return 0, 0, &Trouble{"the demonstration needs two CPUs, one for the attacker and one for the server",
			"run it on a machine with two, or give this process a second one (taskset, cpuset)"}
	}
	return pair[0], pair[1], nil
}

// leaveCPU keeps all threads of this process away from a CPU until undo is called. This includes threads that these threads start. A thread that is
// pinned to a CPU later stays there.
func leaveCPU(cpu int) (undo func(), err error) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("affinity: %w", err)
	}
	others := before
	others.Clear(cpu)
	if err := setAffinity(&others); err != nil {
		return nil, err
	}
	return func() { _ = setAffinity(&before) }, nil // worked before
}

// setAffinity sets the CPUs of all threads of this process.
func setAffinity(set *unix.CPUSet) error {
	return eachThread("affinity", func(tid int) error { return unix.SchedSetaffinity(tid, set) })
}

// eachThread calls fn for all threads of this process. Threads may start and end at the same time, so it continues until it finds no new thread.
func eachThread(what string, fn func(tid int) error) error {
	done := make(map[string]bool)
	for more := true; more; {
		more = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("threads: %w", err)
		}
		for _, t := range threads {
			if done[t.Name()] {
				continue
			}
			done[t.Name()], more = true, true
			tid, _ := strconv.Atoi(t.Name()) // a number, see proc(5)
			if err := fn(tid); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("%s of thread %d: %w", what, tid, err)
			}
		}
	}
	return nil
}

// urgently runs fn while all threads of this process, and the processes that they start, have priority over the server's receive threads. On a
// machine with two CPUs, the operator's command would otherwise wait for the flood, as on a server with a single CPU.
func urgently(fn func() error) error {
	before := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	urgent := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: lab.MostUrgent}
	set := func(attr *unix.SchedAttr) error {
		return eachThread("priority", func(tid int) error { return unix.SchedSetAttr(tid, attr, 0) })
	}
	return errors.Join(set(urgent), fn(), set(before))
}
