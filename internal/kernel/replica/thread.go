// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// step is a part of the work that must run on a given thread.
type step func(context.Context) error

// apart runs steps one after the other on a thread that ends with this call. It runs the steps in asHost in the present network namespace, and the
// steps in inside in a new namespace of the thread. Programs that a step starts run in the thread's namespace.
func apart(ctx context.Context, asHost, inside []step) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := take(ctx, asHost)
		if err == nil {
			err = alone(func() error { return take(ctx, inside) })
		}
		result <- err
	}()
	return <-result
}

func take(ctx context.Context, steps []step) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// alone runs fn in a new network namespace. It then returns the thread to the old namespace, because Go never ends the main thread of a process.
func alone(fn func() error) error {
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("own network namespace: %w", err)
	}
	defer before.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	err = fn()
	if back := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); back != nil {
		err = errors.Join(err, fmt.Errorf("back to the own network namespace: %w", back))
	}
	return err
}
