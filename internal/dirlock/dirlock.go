// Package dirlock keeps processes apart that change a directory. The lock is on the directory itself, so that nothing is
// left of it when that is removed.
package dirlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrTaken is returned when others had the lock for as long as was waited.
var ErrTaken = errors.New("another process has the lock")

// again is how soon a lock that another has is tried again.
const again = 20 * time.Millisecond

// Lock keeps others from locking the directory until unlock is called, or this process ends. It waits for them until the
// context is done. A directory may vanish with a lock that others had: before each try, prepare makes it, or says why that
// it is absent ends the wait.
func Lock(ctx context.Context, dir string, prepare func() error) (unlock func(), err error) {
	for {
		if err := prepare(); err != nil {
			return nil, err
		}
		unlock, err := try(dir)
		if unlock != nil || err != nil {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, ErrTaken
		case <-time.After(again):
		}
	}
}

// try returns no function when another has the lock, or has just removed the directory.
func try(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("directory to lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && isStill(f, dir) {
		return func() { f.Close() }, nil
	}
	f.Close()
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	return nil, fmt.Errorf("locking %s: %w", dir, err)
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
