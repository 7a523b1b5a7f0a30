// SPDX-License-Identifier: Apache-2.0

package safefile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLock takes a lock twice. The second call must fail if the context ends before the lock is released. It must succeed if the lock is released in
// time.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	there := func() error { return nil }
	unlock, err := Lock(t.Context(), dir, there)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*again)
	defer cancel()
	if _, err := Lock(short, dir, there); !errors.Is(err, ErrTaken) {
		t.Errorf("a lock that another has: %v, want %v", err, ErrTaken)
	}
	time.AfterFunc(2*again, unlock)
	second, err := Lock(t.Context(), dir, there)
	if err != nil {
		t.Fatalf("a lock that was given up: %v", err)
	}
	second()
}

// TestRemoved removes and recreates the directory while it is locked. The next Lock must lock the new directory.
func TestRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	tries := 0
	prepare := func() error {
		tries++
		return os.MkdirAll(dir, 0o700)
	}
	unlock, err := Lock(t.Context(), dir, prepare)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	second, err := Lock(t.Context(), dir, prepare)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	short, cancel := context.WithTimeout(t.Context(), 3*again)
	defer cancel()
	if _, err := Lock(short, dir, prepare); !errors.Is(err, ErrTaken) {
		t.Errorf("%v, want %v: the second one has the lock of what is there now", err, ErrTaken)
	}
	second()
	gone := errors.New("nothing is there")
	if _, err := Lock(t.Context(), dir, func() error { return gone }); !errors.Is(err, gone) || tries < 3 {
		t.Errorf("%v after %d tries, want %v", err, tries, gone)
	}
}

// TestWaitingComesFirst keeps several goroutines waiting for the lock at all times, so that it is never free for long. Another caller must still get
// it.
func TestWaitingComesFirst(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	failed, locked := make(chan error, 3), make(chan struct{}, 1)
	hold := func() error { // uses an open file of its own, which the kernel treats like another process
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return err
		}
		select {
		case locked <- struct{}{}:
		default:
		}
		time.Sleep(30 * time.Millisecond)
		return nil
	}
	for range cap(failed) {
		go func() {
			var err error
			for ctx.Err() == nil && err == nil {
				err = hold()
			}
			failed <- err
		}()
	}
	<-locked
	for i := range 5 {
		limited, end := context.WithTimeout(t.Context(), 20*time.Second)
		unlock, err := Lock(limited, dir, func() error { return nil })
		end()
		if err != nil {
			t.Errorf("lock %d: %v", i, err)
			break
		}
		unlock()
	}
	cancel()
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// TestGivesUp ends the context of a caller that waits in the kernel. If the kernel grants the lock later, it must be released at once.
func TestGivesUp(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	there := func() error { return nil }
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Lock(short, dir, there); !errors.Is(err, ErrTaken) {
		t.Errorf("%v, want %v", err, ErrTaken)
	}
	f.Close()
	unlock, err := Lock(t.Context(), dir, there)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
