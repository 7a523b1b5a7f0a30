// This file keeps processes apart that change a directory. The lock is on the directory itself, so that nothing is
// left of it when that is removed.

package safefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrTaken is returned when others had the lock for as long as was waited.
var ErrTaken = errors.New("another process has the lock")

// again is how soon a process that waits looks whether the directory is still the one of its name.
const again = 200 * time.Millisecond

// turns has a place for each directory, for the one of this process that waits in the kernel. Others wait for the place, in the order in
// which they came.
var turns sync.Map

// errVanished says that the directory is not the one of its name any more.
var errVanished = errors.New("the directory has been removed")

// Lock keeps others from locking the directory until unlock is called, or this process ends. It waits for them until the
// context is done. Who waits gets the lock before one who unlocks it and wants it again at once. A directory may vanish with a lock that
// others had: before each try, prepare makes it, or says why that it is absent ends the wait.
func Lock(ctx context.Context, dir string, prepare func() error) (unlock func(), err error) {
	leave := takeTurn(ctx, dir)
	if leave == nil {
		return nil, ErrTaken
	}
	defer leave()
	for {
		err := prepare()
		if err == nil {
			unlock, err = try(ctx, dir)
		}
		if !errors.Is(err, errVanished) {
			return unlock, err
		}
	}
}

// takeTurn waits until nobody else of this process waits in the kernel. It returns nil when the context is done before.
func takeTurn(ctx context.Context, dir string) (leave func()) {
	turn, _ := turns.LoadOrStore(dir, make(chan struct{}, 1))
	place := turn.(chan struct{})
	leave = func() { <-place }
	select {
	case place <- struct{}{}:
		return leave
	default:
	}
	select {
	case place <- struct{}{}:
		return leave
	case <-ctx.Done():
		return nil
	}
}

// try waits for the lock of a directory that is there.
func try(ctx context.Context, dir string) (release func(), err error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errVanished
	}
	if err != nil {
		return nil, fmt.Errorf("directory to lock: %w", err)
	}
	release = func() { f.Close() }
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		release, err = wait(ctx, f, dir)
	} else if err != nil {
		err = fmt.Errorf("locking %s: %w", dir, err)
	}
	if err == nil && !isStill(f, dir) {
		err = errVanished
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// wait waits in the kernel, which hands the lock to one who waits. Nothing ends that wait but the lock: when the context ends before, the
// lock is released as soon as it comes. release closes the file then.
func wait(ctx context.Context, f *os.File, dir string) (release func(), err error) {
	locked := make(chan error, 1)
	go func() {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		locked <- err
	}()
	later := func() { go func() { <-locked; f.Close() }() }
	look := time.NewTicker(again)
	defer look.Stop()
	for {
		select {
		case err := <-locked:
			if err != nil {
				err = fmt.Errorf("locking %s: %w", dir, err)
			}
			return func() { f.Close() }, err
		case <-ctx.Done():
			return later, ErrTaken
		case <-look.C:
			if !isStill(f, dir) {
				return later, errVanished
			}
		}
	}
}

// isStill reports whether an open directory is the one of that name: it may have been removed while we waited.
func isStill(f *os.File, dir string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(dir)
	return err == nil && os.SameFile(opened, named)
}
