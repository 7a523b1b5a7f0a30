package datapath

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The index of a device is valid in one network namespace only, so the state records the namespace. An apply in another
// one would take devices of its own for those of the first, and swap the policy of the wrong host. When a namespace has
// ended, as with a container that is started again, its devices are gone, and anyone with the directory may take the
// state over.

// pinAlive is a map of devices whose one entry is the loopback device of the state's namespace. The kernel removes the entry
// when the device ends (dev_map_notification of kernel/bpf/devmap.c), and that device ends with its namespace and not
// before. It costs packets nothing.
const pinAlive = "alive"

// owner is the relation of a state's network namespace to this thread's.
type owner int

const (
	nobodys owner = iota // it does not say
	ours
	others   // of a namespace that there is, or may be
	deceased // of one that has ended
)

// owner compares the state's namespace with this thread's.
func (s *State) owner() (owner, error) {
	m, err := ebpf.LoadPinnedMap(s.path(pinNamespace), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nobodys, nil
	}
	if err != nil {
		return others, fmt.Errorf("state directory: network namespace: %w", err)
	}
	defer m.Close()
	var theirs uint64
	if err := m.Lookup(uint32(0), &theirs); err != nil {
		return others, fmt.Errorf("state directory: network namespace: %w", err)
	}
	mine, err := namespaceCookie()
	if err != nil {
		return others, err
	}
	if mine == theirs {
		return ours, nil
	}
	ended, err := s.namespaceEnded()
	if ended {
		return deceased, err
	}
	return others, err
}

// namespaceEnded reports whether the namespace of the state has certainly ended.
func (s *State) namespaceEnded() (bool, error) {
	m, err := ebpf.LoadPinnedMap(s.path(pinAlive), nil)
	if errors.Is(err, os.ErrNotExist) {
		return s.allDefunct()
	}
	if err != nil {
		return false, fmt.Errorf("state directory: network namespace: %w", err)
	}
	defer m.Close()
	var index uint32
	err = m.Lookup(uint32(0), &index)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("state directory: network namespace: %w", err)
	}
	return false, nil
}

// allDefunct is the test for a state of an earlier version: it has links, and the devices of all have gone.
func (s *State) allDefunct() (bool, error) {
	entries, err := os.ReadDir(s.path(dirLinks))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		l, err := link.LoadPinnedLink(s.path(dirLinks, e.Name()), nil)
		if err != nil {
			return false, fmt.Errorf("link of device %s: %w", unpinName(e.Name()), err)
		}
		info, err := l.Info()
		l.Close()
		if err != nil {
			return false, fmt.Errorf("link of device %s: %w", unpinName(e.Name()), err)
		}
		if x := info.XDP(); x == nil || x.Ifindex != 0 {
			return false, nil
		}
	}
	return len(entries) > 0, nil
}

// checkNamespace refuses a state of another network namespace, unless that has ended.
func (s *State) checkNamespace() error {
	whose, err := s.owner()
	if whose == others && err == nil {
		return &StateError{Dir: s.dir, Cause: "belongs to a Floodwall in another network namespace",
			Remedy: "use another --bpffs in this one; once that namespace has ended, `floodwall apply` takes this one over"}
	}
	return err
}

// The kernel ends a namespace some time after its last process. An apply waits this long for it.
const (
	namespaceWait  = 3 * time.Second
	namespaceAgain = 50 * time.Millisecond
)

// awaitNamespace is checkNamespace with patience.
func (s *State) awaitNamespace() error {
	for end := time.Now().Add(namespaceWait); ; time.Sleep(namespaceAgain) {
		whose, err := s.owner()
		if whose != others || err != nil || time.Now().After(end) {
			return s.checkNamespace()
		}
	}
}

// claim takes over a state without a namespace, or of one that has ended. The remains stay until the next Install
// replaces them, except for the setting of its host and the directory of its files. The caller holds the lock.
func (s *State) claim() error {
	if err := s.checkNamespace(); err != nil {
		return err
	}
	whose, err := s.owner()
	if err != nil {
		return err
	}
	if whose == deceased {
		if err := errors.Join(s.ForgetSetting(), removeUnused(s.path(pinDirectory))); err != nil {
			return err
		}
	}
	if _, err := os.Stat(s.path(pinAlive)); whose == ours && err == nil {
		return nil
	}
	cookie, err := namespaceCookie()
	if err != nil {
		return err
	}
	const loopback = 1 // LOOPBACK_IFINDEX of include/net/flow.h
	err = s.pinNumber(pinAlive, &ebpf.MapSpec{Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: uint32(loopback)}}})
	if err == nil { // the last, as it is what says whose the state is
		err = s.pinNumber(pinNamespace, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
			Contents: []ebpf.MapKV{{Key: uint32(0), Value: cookie}}})
	}
	if err != nil {
		return fmt.Errorf("state directory: network namespace: %w", err)
	}
	return nil
}

// pinNumber pins a map in the place of the one that is there, if any.
func (s *State) pinNumber(name string, spec *ebpf.MapSpec) error {
	spec.Name = name
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return err
	}
	defer m.Close()
	passing := s.path(name + passingSuffix)
	if err := removeUnused(passing); err != nil {
		return err
	}
	if err := m.Pin(passing); err != nil {
		return err
	}
	return os.Rename(passing, s.path(name))
}

// namespaceCookie is the number of the calling thread's network namespace, which the kernel gives to no other until the
// machine starts again (SO_NETNS_COOKIE, since Linux 5.14); the numbers in /proc/self/ns are used again.
func namespaceCookie() (uint64, error) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	defer unix.Close(socket)
	cookie, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	return cookie, nil
}
