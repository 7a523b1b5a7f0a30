// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Elsewhere is a network namespace in which functions can run.
type Elsewhere struct {
	run chan func()
	fd  int // the file descriptor of the namespace
}

// NewElsewhere makes a network namespace. It ends with the test.
func NewElsewhere(t testing.TB) *Elsewhere {
	t.Helper()
	n := &Elsewhere{run: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- err
		for f := range n.run {
			f()
		}
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(n.run); unix.Close(n.fd) })
	return n
}

// Enter returns the network namespace at a path such as /proc/self/ns/net.
func Enter(t testing.TB, path string) *Elsewhere {
	t.Helper()
	n := &Elsewhere{run: make(chan func())}
	var err error
	if n.fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatalf("network namespace %s: %v", path, err)
	}
	go func() {
		for f := range n.run {
			n.Begin(f)
		}
	}()
	t.Cleanup(func() { close(n.run); unix.Close(n.fd) })
	return n
}

// Path returns a path of the namespace for ip(8) and nsenter(1). It is valid as long as the test runs.
func (n *Elsewhere) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// Begin runs f in the namespace on a thread of its own, and does not wait until f returns. If the thread cannot enter the namespace, the program
// ends.
func (n *Elsewhere) Begin(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("entering a network namespace: %v", err))
		}
		f()
	}()
}

// Do runs f in the namespace, and waits until f returns. f must not end the test. Goroutines that f starts do not run in the namespace.
func (n *Elsewhere) Do(f func()) {
	done := make(chan struct{})
	n.run <- func() { defer close(done); f() }
	<-done
}

// Take moves a device to the namespace.
func (n *Elsewhere) Take(t testing.TB, device string) {
	t.Helper()
	dev, err := netlink.LinkByName(device)
	if err == nil {
		err = netlink.LinkSetNsFd(dev, n.fd)
	}
	if err != nil {
		t.Fatalf("moving device %s: %v", device, err)
	}
}
