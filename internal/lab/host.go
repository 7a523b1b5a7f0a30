// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Host is a separate network namespace. Its loopback device is up.
type Host struct {
	Name    string
	ns      *os.File        // the namespace
	sysfs   int             // descriptor of a sysfs mount of the namespace; the mount has no place in the directory tree
	control int             // descriptor of a socket in the namespace, for ioctl
	links   *netlink.Handle // rtnetlink in the namespace
}

// newHost calls enter on a thread that ends with this call. The function enter may move the thread to another namespace. So only the descriptors keep
// a new namespace.
func newHost(name string, enter func(*Host) error) (*Host, error) {
	h := &Host{Name: name, sysfs: -1, control: -1}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		failed <- enter(h)
	}()
	err := <-failed
	if err == nil {
		err = h.useLinks()
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// enterNew moves the calling thread to a new namespace, and opens it.
func (h *Host) enterNew() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	return h.open()
}

// open opens the descriptors of everything that depends on the namespace of the calling thread.
func (h *Host) open() (err error) {
	if h.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if h.sysfs, err = mountSysfs(); err != nil {
		return fmt.Errorf("sysfs of the namespace: %w", err)
	}
	if h.control, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// mountSysfs returns a descriptor of a new sysfs mount, which shows the devices of the calling thread's namespace. The mount has no place in the
// directory tree, so it ends with the descriptor.
func mountSysfs() (int, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}

// useLinks opens rtnetlink in the namespace, and sets the loopback device up.
func (h *Host) useLinks() (err error) {
	err = h.Do(func() (err error) {
		h.links, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return fmt.Errorf("rtnetlink: %w", err)
	}
	lo, err := h.links.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback device: %w", err)
	}
	return h.links.LinkSetUp(lo)
}

func (h *Host) close() error {
	var errs []error
	if h.links != nil {
		h.links.Close()
	}
	for _, fd := range []int{h.control, h.sysfs} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	if h.ns != nil {
		errs = append(errs, h.ns.Close())
	}
	h.links, h.control, h.sysfs, h.ns = nil, -1, -1, nil
	return errors.Join(errs...)
}

// Do runs fn on a thread in the host's namespace. Sockets that fn opens, programs that it attaches and processes that it starts belong to the host.
// Goroutines that it starts do not run there.
func (h *Host) Do(fn func() error) error {
	if h.ns == nil {
		return fmt.Errorf("host %s: closed", h.Name)
	}
	runtime.LockOSThread()
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("host %s: own network namespace: %w", h.Name, err)
	}
	defer before.Close()
	if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("host %s: enter network namespace: %w", h.Name, err)
	}
	defer func() {
		// A thread that cannot return stays locked. So Go ends it, and runs nothing else on it.
		if unix.Setns(int(before.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

// Sysctl sets a variable under /proc/sys/net of the host. The name is relative to this directory and separated by slashes ("ipv4/ip_forward").
func (h *Host) Sysctl(name, value string) error {
	err := h.Do(func() error { return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644) })
	if err != nil {
		return fmt.Errorf("sysctl net/%s=%s: %w", name, value, err)
	}
	return nil
}

// Route routes packets to a prefix through dev, to the neighbor via, which must be an address of dev's peer.
func (h *Host) Route(to netip.Prefix, via netip.Addr, dev *Device) error {
	route := &netlink.Route{LinkIndex: dev.Index, Dst: ipNet(to.Masked()), Gw: via.AsSlice()}
	if err := h.links.RouteReplace(route); err != nil {
		return fmt.Errorf("route %s via %s: %w", to, via, err)
	}
	return nil
}

// Router makes the host forward packets of both families between its links. It turns off the check of source routes.
func (h *Host) Router() error {
	for _, s := range []string{
		"ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=0", "ipv4/conf/default/rp_filter=0",
	} {
		name, value, _ := strings.Cut(s, "=")
		if err := h.Sysctl(name, value); err != nil {
			return err
		}
	}
	return nil
}

// Own makes all addresses of a prefix local to the host: it receives their packets, and sockets can be bound to them.
func (h *Host) Own(p netip.Prefix) error {
	lo, err := h.links.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback device: %w", err)
	}
	route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipNet(p.Masked()), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}
	if err := h.links.RouteReplace(route); err != nil {
		return fmt.Errorf("own addresses %s: %w", p, err)
	}
	return nil
}
