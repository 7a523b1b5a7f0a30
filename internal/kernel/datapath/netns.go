// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The index of a device is valid only in one network namespace, so the state records the namespace. Without this record, an apply in another
// namespace would mistake its own devices for those of the first namespace, and change the policy of the wrong host. When a namespace has ended, for
// example because a container was restarted, its devices are gone. Then any instance with this directory may take the state over.

// pinAlive is the name of a map of devices whose only entry is the loopback device of the state's namespace. The kernel removes the entry when this
// device is destroyed (dev_map_notification of kernel/bpf/devmap.c). That happens exactly when the namespace ends. The map does not slow packets
// down.
const pinAlive = "alive"

// owner says whether the state belongs to the network namespace of this thread.
type owner int

const (
	nobodys owner = iota // the state has no namespace
	ours
	others   // another namespace that exists, or may exist
	deceased // a namespace that has ended
)

// owner compares the state's network namespace with that of this thread.
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

// allDefunct is namespaceEnded for a state of an earlier version without pinAlive. It returns true if there are links and the devices of all links
// have gone away.
func (s *State) allDefunct() (bool, error) {
	entries, err := os.ReadDir(s.path(dirLinks))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		l, on, err := openLink(s.path(dirLinks, e.Name()))
		if err != nil {
			return false, fmt.Errorf("link of device %s: %w", unpinName(e.Name()), err)
		}
		l.Close()
		if on.ifindex != 0 {
			return false, nil
		}
	}
	return len(entries) > 0, nil
}

// checkNamespace returns an error for a state of another network namespace, unless that namespace has ended.
func (s *State) checkNamespace() error {
	whose, err := s.owner()
	if whose == others && err == nil {
		return &StateError{Dir: s.dir, Cause: "belongs to a Floodwall in another network namespace",
			Remedy: "use another --bpffs in this one; once that namespace has ended, `floodwall apply` takes this one over"}
	}
	return err
}

// The kernel ends a namespace some time after the namespace's last process. An apply waits up to namespaceWait for that.
const (
	namespaceWait  = 3 * time.Second
	namespaceAgain = 50 * time.Millisecond
)

// awaitNamespace is checkNamespace, but it waits up to namespaceWait for the other namespace to end.
func (s *State) awaitNamespace() error {
	for end := time.Now().Add(namespaceWait); ; time.Sleep(namespaceAgain) {
		whose, err := s.owner()
		if whose != others || err != nil || time.Now().After(end) {
			return s.checkNamespace()
		}
	}
}

// claim takes over a state that has no namespace, or whose namespace has ended. The content of the state stays until the next Install replaces it. Only
// the recorded setting of the old host and the recorded path of its files are removed. The caller must hold the lock.
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
	if err == nil { // this map is pinned last, because it determines the owner of the state
		err = s.pinNumber(pinNamespace, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
			Contents: []ebpf.MapKV{{Key: uint32(0), Value: cookie}}})
	}
	if err != nil {
		return fmt.Errorf("state directory: network namespace: %w", err)
	}
	return nil
}

// pinNumber creates and pins a map. It replaces an existing pin.
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

// namespaceCookie returns the cookie of the calling thread's network namespace. The kernel does not reuse a cookie until the next boot
// (SO_NETNS_COOKIE, since Linux 5.14). It does reuse the numbers in /proc/self/ns.
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
