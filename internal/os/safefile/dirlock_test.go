// SPDX-License-Identifier: Apache-2.0

package safefile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
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

// TestLockBeside holds locks of a file and of its directory, as a user can who only reads them. LockBeside must not wait for these. It must wait for
// another LockBeside, take the lock file of a killed process, and leave no lock file.
func TestLockBeside(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	name := filepath.Join(dir, ".policy.yaml.lock")
	must(t, os.WriteFile(file, nil, 0o644))
	for _, path := range []string{dir, file} {
		f, err := os.Open(path)
		must(t, err)
		defer f.Close()
		must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	}
	must(t, os.WriteFile(name, nil, 0o600)) // of a killed process
	unlock, err := LockBeside(t.Context(), file)
	must(t, err)
	if info, err := os.Lstat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("the lock file: %v, %v", info, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*again)
	defer cancel()
	if _, err := LockBeside(short, file); !errors.Is(err, ErrTaken) {
		t.Errorf("a lock that another has: %v, want %v", err, ErrTaken)
	}
	other, err := LockBeside(t.Context(), filepath.Join(dir, "other.yaml"))
	must(t, err)
	other()
	time.AfterFunc(2*again, unlock)
	second, err := LockBeside(t.Context(), file)
	must(t, err)
	second()
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %q, %v", left, err)
	}
}

// TestLockBesideForeign finds lock files that other users can open, or that lead elsewhere. They must be rejected with a remedy.
func TestLockBesideForeign(t *testing.T) {
	testutil.RequireRoot(t)
	for cause, make := range map[string]func(name string) error{
		"can be read by others: its mode is 0644": func(name string) error { return os.WriteFile(name, nil, 0o644) },
		"belongs to user 65534, not to root":      func(name string) error { return errors.Join(os.WriteFile(name, nil, 0o600), os.Chown(name, 65534, -1)) },
		"lock file: open ":                        func(name string) error { return os.Symlink("/etc/passwd", name) },
	} {
		dir := t.TempDir()
		must(t, make(filepath.Join(dir, ".policy.yaml.lock")))
		_, err := LockBeside(t.Context(), filepath.Join(dir, "policy.yaml"))
		var hinted interface{ Hint() string }
		if err == nil || !strings.Contains(err.Error(), cause) || !errors.As(err, &hinted) {
			t.Errorf("%s: %v", cause, err)
		}
	}
}

// TestLockBesideUnwritable locks a file in a directory where no file can be created. No lock is needed there.
func TestLockBesideUnwritable(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	dir := t.TempDir()
	must(t, unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, ""))
	defer unix.Unmount(dir, 0)
	unlock, err := LockBeside(t.Context(), filepath.Join(dir, "policy.yaml"))
	must(t, err)
	unlock()
}
