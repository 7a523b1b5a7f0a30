// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// Lab is a set of hosts and the links between them. Its methods may be called from several goroutines.
type Lab struct {
	mu      sync.Mutex
	hosts   map[string]*Host
	cleanup []func() error // Close runs them in reverse order
}

// Run builds an empty lab and calls fn with it. It removes the lab when fn returns or panics. The context of fn ends with ctx, and when the process
// gets SIGINT or SIGTERM.
func Run(ctx context.Context, fn func(ctx context.Context, l *Lab) error) (err error) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	l, err := New(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return fn(ctx, l)
}

// New returns a lab without hosts. The caller must Close it; Run does this itself. New fails without CAP_SYS_ADMIN, which root has.
func New(ctx context.Context) (*Lab, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !mayUnshare() {
		return nil, errors.New("lab: network namespaces need root; run as root, or with sudo")
	}
	return &Lab{hosts: make(map[string]*Host)}, nil
}

// mayUnshare reports whether this process may make network namespaces (unshare(2)).
func mayUnshare() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return err == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// Host returns the host with a name, and makes it if there is none yet. Only the lab uses the name: the kernel never sees it.
func (l *Lab) Host(name string) (*Host, error) { return l.host(name, (*Host).enterNew) }

// Own returns a host for the namespace of this process. Close removes everything that the lab connects to this host, but keeps the namespace.
func (l *Lab) Own(name string) (*Host, error) { return l.host(name, (*Host).open) }

func (l *Lab) host(name string, enter func(*Host) error) (*Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hosts[name]; h != nil {
		return h, nil
	}
	h, err := newHost(name, enter)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	l.hosts[name] = h
	l.cleanup = append(l.cleanup, h.close)
	return h, nil
}

// onClose makes Close call fn, before functions that were registered earlier.
func (l *Lab) onClose(fn func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanup = append(l.cleanup, fn)
}

// Close detaches the programs, removes the links and closes the namespaces, in this order. It may be called at any time and more than once. It
// continues after errors and returns all of them.
func (l *Lab) Close() error {
	l.mu.Lock()
	cleanup := l.cleanup
	l.cleanup, l.hosts = nil, make(map[string]*Host)
	l.mu.Unlock()

	var errs []error
	for i := len(cleanup) - 1; i >= 0; i-- {
		errs = append(errs, cleanup[i]())
	}
	return errors.Join(errs...)
}
