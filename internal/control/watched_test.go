package control

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// useLockDir has lock files elsewhere, in a directory that is not there yet.
func useLockDir(t *testing.T) {
	before := lockDir
	lockDir = filepath.Join(t.TempDir(), "floodwall")
	t.Cleanup(func() { lockDir = before })
}

// TestWatched takes the place of the one that watches, and gives it back.
func TestWatched(t *testing.T) {
	useLockDir(t)
	in := Instance{Dir: "/sys/fs/bpf/" + strings.Repeat("long/", 100)}
	if in.watched() {
		t.Error("it is watched before")
	}
	end, err := in.alone()
	if err != nil {
		t.Fatal(err)
	}
	if !in.watched() || !(Instance{Dir: in.Dir + "./"}).watched() {
		t.Error("it is not watched")
	}
	var held *WatchedError
	if _, err := in.alone(); !errors.As(err, &held) || held.Process != os.Getpid() {
		t.Errorf("a second one: %v, want that process %d holds it", err, os.Getpid())
	}
	if (Instance{Dir: t.TempDir()}).watched() {
		t.Error("another instance is watched")
	}
	if info, err := os.Stat(lockDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of locks: %v, %v", info, err)
	}
	end()
	if in.watched() {
		t.Error("it is watched after the end")
	}
	if _, err := os.Stat(lockDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of locks is left: %v", err)
	}
}

// TestWatchedAfterCrash has a file left by a process that was killed.
func TestWatchedAfterCrash(t *testing.T) {
	useLockDir(t)
	in := Instance{Dir: "/crashed"}
	name, err := in.lockFile()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(lockDir, 0o700), os.WriteFile(name, []byte("1234567890\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if in.watched() {
		t.Error("it is watched by a process that is gone")
	}
	end, err := in.alone()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if got := processIn(name); got != os.Getpid() {
		t.Errorf("process %d is in the file, want %d", got, os.Getpid())
	}
}

// TestWatchedByOne has several begin and end at the same time, and others ask: never do two watch, and asking is in
// nobody's way.
func TestWatchedByOne(t *testing.T) {
	useLockDir(t)
	in := Instance{Dir: "/one"}
	var one sync.Mutex // held by who watches
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for taken := 0; taken < 200; in.watched() {
				end, err := in.alone()
				var held *WatchedError
				if errors.As(err, &held) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if taken++; !one.TryLock() {
					t.Error("two watch at the same time")
					end()
					return
				}
				one.Unlock()
				end()
			}
		})
	}
	all.Wait()
}
