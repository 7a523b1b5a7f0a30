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

// startNAPI gives the device a kernel thread to receive on, and pins this thread. It finds the new thread by its name ("napi/eth0-8193", kernel
// net/core/dev.c, napi_kthread_create). This works on all kernels that have such threads. The netlink family that reports the thread (netdev-genl) is
// younger.
func (d *Device) startNAPI() error {
	unlock, err := lockThreads()
	if err != nil {
		return err
	}
	defer unlock()
	before, err := processes()
	if err != nil {
		return err
	}
	if err := d.Host.writeSysfs("class/net/"+d.Name+"/threaded", "1"); err != nil {
		return fmt.Errorf("threaded NAPI: %w", err)
	}
	if d.napi, err = newNAPIThread(d.Name, before); err != nil {
		return err
	}
	if d.napi == 0 {
		return errors.New("threaded NAPI: the kernel thread is not visible; /proc must show kernel threads")
	}
	if d.options.Urgent {
		priority := MoreUrgent
		if d.options.First {
			priority = firstReceiver
		}
		if err := hurry(d.napi, priority); err != nil {
			return err
		}
	}
	if d.options.CPU == AnyCPU {
		return nil
	}
	return pin(d.napi, int(d.options.CPU)-1)
}

// emptyLooks is the number of polls without a packet, after which a coalescing receive thread waits for a wakeup.
const emptyLooks = 2

// Coalesce sets the time for which the device's receive thread collects packets before it polls again, like the interrupt coalescing of network
// cards (ethtool -C, rx-usecs; kernel net/core/dev.c, napi_complete_done). With 0, the initial value, each frame wakes the thread at once, which
// costs both sides more than the frame itself. While the thread waits, a veth keeps 256 frames and loses others.
func (d *Device) Coalesce(wait time.Duration) error {
	for file, value := range map[string]int64{"napi_defer_hard_irqs": emptyLooks, "gro_flush_timeout": wait.Nanoseconds()} {
		if err := d.Host.writeSysfs("class/net/"+d.Name+"/"+file, strconv.FormatInt(value, 10)); err != nil {
			return fmt.Errorf("device %s: coalesce: %w", d.Name, err)
		}
	}
	return nil
}

// lockThreads prevents other labs, in this process and others, from starting threads for a device of the same name at the same time. It locks /proc,
// which is always there, and which shows the threads.
func lockThreads() (unlock func(), err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	for {
		switch err := unix.Flock(int(proc.Fd()), unix.LOCK_EX); err {
		case nil:
			return func() { proc.Close() }, nil
		case unix.EINTR:
		default:
			proc.Close()
			return nil, fmt.Errorf("lock /proc: %w", err)
		}
	}
}

// processes returns the identifiers of all processes, including the kernel's threads.
func processes() (map[int]bool, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make(map[int]bool)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all[pid] = true
		}
	}
	return all, nil
}

// newNAPIThread returns the NAPI thread of a device with this name, in any namespace, that is not in before; 0 if there is none. On kernels before
// 5.17 its name is cut to 15 bytes.
func newNAPIThread(device string, before map[int]bool) (int, error) {
	const commLen = 15
	want := "napi/" + device + "-"
	now, err := processes()
	if err != nil {
		return 0, err
	}
	for pid := range now {
		if before[pid] {
			continue
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // fails if it has ended
		name := strings.TrimSpace(string(comm))
		if err == nil && strings.HasPrefix(name, want[:min(len(want), max(len(name), commLen))]) {
			return pid, nil
		}
	}
	return 0, nil
}

// writeSysfs writes to a file of the host's sysfs.
func (h *Host) writeSysfs(path, value string) error {
	fd, err := unix.Openat(h.sysfs, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// ipv6Enabled reports whether the kernel has IPv6.
func ipv6Enabled() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}
