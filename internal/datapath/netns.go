package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Devices are known by numbers that hold in one network namespace only. The state says which: an apply in another one
// would take the devices of the first for its own, and swap the policy of the wrong host.

// checkNamespace refuses a state that was made in another network namespace. One that says nothing passes.
func (s *State) checkNamespace() error {
	m, err := ebpf.LoadPinnedMap(s.path(pinNamespace), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("state directory: network namespace: %w", err)
	}
	defer m.Close()
	var theirs uint64
	if err := m.Lookup(uint32(0), &theirs); err != nil {
		return fmt.Errorf("state directory: network namespace: %w", err)
	}
	ours, err := namespaceCookie()
	if err != nil {
		return err
	}
	if ours != theirs {
		return &StateError{Dir: s.dir, Cause: "belongs to a Floodwall in another network namespace",
			Remedy: "use another --bpffs in this one"}
	}
	return nil
}

// claim notes the network namespace in a state that does not say one. The caller holds the lock.
func (s *State) claim() error {
	if err := s.checkNamespace(); err != nil {
		return err
	}
	if _, err := os.Stat(s.path(pinNamespace)); err == nil {
		return nil
	}
	cookie, err := namespaceCookie()
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: pinNamespace, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: cookie}},
	})
	if err != nil {
		return fmt.Errorf("state directory: network namespace: %w", err)
	}
	defer m.Close()
	if err := m.Pin(s.path(pinNamespace)); err != nil {
		return fmt.Errorf("state directory: network namespace: %w", err)
	}
	return nil
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
