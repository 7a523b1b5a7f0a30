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

// startNAPI gives the device a kernel thread to receive on, and pins it. The thread is found by its name
// ("napi/eth0-8193", kernel net/core/dev.c, napi_kthread_create) and by being new, which works on all kernels that
// have such threads; the netlink family that tells it (netdev-genl) is younger.
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

// emptyLooks is how often a receive thread that coalesces looks in vain before it waits to be woken.
const emptyLooks = 2

// Coalesce has the device's receive thread wait so long for more before it looks again, as long as there is something, as
// cards do (ethtool -C, rx-usecs; kernel net/core/dev.c, napi_complete_done). 0, as at first, has it woken at once, which costs
// both sides more than the frame when frames come one by one. A veth keeps 256 frames meanwhile; others are lost.
func (d *Device) Coalesce(wait time.Duration) error {
	for file, value := range map[string]int64{"napi_defer_hard_irqs": emptyLooks, "gro_flush_timeout": wait.Nanoseconds()} {
		if err := d.Host.writeSysfs("class/net/"+d.Name+"/"+file, strconv.FormatInt(value, 10)); err != nil {
			return fmt.Errorf("device %s: coalesce: %w", d.Name, err)
		}
	}
	return nil
}

// lockThreads keeps other labs, in this process and others, from starting threads for a device of the same name at the
// same time. /proc serves as the file to lock, since it is there and shows the threads.
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

// processes are the numbers of all processes, the kernel's threads among them.
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

// newNAPIThread returns the NAPI thread of a device of that name, in whatever namespace, that is none of the processes of
// before; 0 when there is none. Its name is cut at 15 bytes on kernels before 5.17.
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
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // or it has ended
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
