// SPDX-License-Identifier: Apache-2.0

// This file has a lock for processes that change a directory. The locked file is the directory itself, so no lock file remains when the directory is
// removed. Whoever can read a directory can take this lock: LockBeside is for directories that all users can read.

package safefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// ErrTaken is returned if the context ended while another process had the lock.
var ErrTaken = errors.New("another process has the lock")

// again is the interval at which a waiting process tests whether the directory still exists under its name.
const again = 200 * time.Millisecond

// turns has a place for each directory. The goroutine that has the place waits for the lock in the kernel. All other goroutines of this process wait
// for the place, in order of arrival.
var turns sync.Map

// errVanished is the error that the open directory no longer exists under its name.
var errVanished = errors.New("the directory has been removed")

// Lock locks the directory until unlock is called or this process ends. It waits until other holders release the lock, or the context is done. If a
// process releases the lock and takes it again at once, a waiting process gets the lock first. Another holder may remove the directory. So before
// each attempt, Lock calls prepare, which creates the directory. If prepare returns an error, Lock returns it.
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

// LockBeside locks a file by a hidden lock file beside it, which only its owner can open: flock(2) needs no right but to open, so other users could hold
// a lock of the file or of its directory for ever. unlock removes the lock file. That of a killed process stays, and the next call takes it. A process
// that can create no file in the directory cannot replace the file either: it gets no lock, and no error.
func LockBeside(ctx context.Context, file string) (unlock func(), err error) {
	name := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".lock")
	release, err := Lock(ctx, name, func() error { return createLock(name) })
	if errors.Is(err, errUnwritable) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	return func() {
		os.Remove(name) // before the release: a process that waits sees that the file is gone, and creates one
		release()
	}, nil
}

// errUnwritable is the error that this process can create no file in a directory.
var errUnwritable = errors.New("this process cannot write the directory")

// createLock creates a lock file. It returns an error if another user has created it.
func createLock(name string) error {
	f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		if _, gone := os.Lstat(name); errors.Is(gone, fs.ErrNotExist) {
			return errUnwritable
		}
	}
	remedy := "remove it when no other command edits files in its directory"
	if err != nil {
		return wording.WithHint(fmt.Errorf("lock file: %w", err), remedy)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if cause := Key(name).Breach(info); cause != "" {
		return wording.Hinted(fmt.Sprintf("the lock file %s %s", name, cause), remedy)
	}
	return nil
}

// takeTurn waits until no other goroutine of this process waits in the kernel. It returns nil if the context is done before that.
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

// try waits for the lock of an existing directory or file.
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

// wait waits for the lock in the kernel, which passes it to a waiting process. That wait cannot be interrupted. If the context ends first, the lock
// is released as soon as the kernel has granted it. release closes the file.
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

// isStill reports whether an open directory still exists under its name. It may have been removed during the wait.
func isStill(f *os.File, dir string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(dir)
	return err == nil && os.SameFile(opened, named)
}
