// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// lockOf returns the lock of an instance. Its directory of locks does not exist yet.
func lockOf(t *testing.T, instance string) Lock {
	return Lock{filepath.Join(t.TempDir(), "floodwall"), instance}
}

// TestTake takes the lock of an instance and releases it. While the lock is taken, no other process can take it, and the lock shows the directories
// of its holder.
func TestTake(t *testing.T) {
	l := lockOf(t, "/sys/fs/bpf/"+strings.Repeat("long/", 100))
	if l.Held() {
		t.Error("it is watched before")
	}
	end, err := l.Acquire("/srv/state of it", "/run/sockets of it")
	if err != nil {
		t.Fatal(err)
	}
	if got := l.State(); got != "/srv/state of it" {
		t.Errorf("the state directory of the holder: %q", got)
	}
	if got := l.Sockets(); got != "/run/sockets of it" {
		t.Errorf("the sockets of the holder: %q", got)
	}
	if !l.Held() || !(Lock{l.Dir, l.Instance + "./"}).Held() {
		t.Error("it is not watched")
	}
	var held *HeldError
	if _, err := l.Acquire("", ""); !errors.As(err, &held) || held.Process != os.Getpid() {
		t.Errorf("a second one: %v, want that process %d holds it", err, os.Getpid())
	}
	if (Lock{l.Dir, t.TempDir()}).Held() {
		t.Error("another instance is watched")
	}
	if info, err := os.Stat(l.Dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the directory of locks: %v, %v", info, err)
	}
	end()
	if l.Held() || l.State() != "" {
		t.Error("it is watched after the end")
	}
	if _, err := os.Stat(l.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of locks is left: %v", err)
	}
}

// TestTakeAfterCrash takes a lock whose file was left by a killed process.
func TestTakeAfterCrash(t *testing.T) {
	l := lockOf(t, "/crashed")
	name, err := l.file()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(l.Dir, 0o700), os.WriteFile(name, []byte("1234567890\n/srv/gone"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if l.Held() || l.State() != "" {
		t.Error("it is watched by a process that is gone")
	}
	end, err := l.Acquire("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if got := processIn(name); got != os.Getpid() {
		t.Errorf("process %d is in the file, want %d", got, os.Getpid())
	}
}

// TestStateWhileTaken takes a lock whose file was left by a killed process. State must wait until the new holder has written the file.
func TestStateWhileTaken(t *testing.T) {
	l := lockOf(t, "/taken")
	name, err := l.file()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(l.Dir, 0o700), os.WriteFile(name, []byte("1234567890\n/srv/gone"), 0o600)); err != nil {
		t.Fatal(err)
	}
	f, err := open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := lockRange(f, rangeLock); err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	go func() { got <- l.State() }()
	select {
	case state := <-got:
		t.Fatalf("the state directory of a process that is gone: %q", state)
	case <-time.After(50 * time.Millisecond):
	}
	if err := errors.Join(writeHolder(f, []string{"/srv/now"}), lockRange(f, rangeWritten)); err != nil {
		t.Fatal(err)
	}
	if state := <-got; state != "/srv/now" {
		t.Errorf("the state directory of the holder: %q", state)
	}
}

// TestTakeByOne takes and releases a lock in several goroutines at once, while they also call Held. Two must never have the lock at the same time,
// and Held must not prevent anyone from taking it.
func TestTakeByOne(t *testing.T) {
	l := lockOf(t, "/one")
	var one sync.Mutex // held by the goroutine that has taken the lock
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for taken := 0; taken < 200; l.Held() {
				end, err := l.Acquire("", "")
				var held *HeldError
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

// TestMakeDir creates a directory. Its mode must not depend on the umask. MakeDir must not change an existing directory. It must reject a directory
// in which another user could create files or links.
func TestMakeDir(t *testing.T) {
	made, private := filepath.Join(t.TempDir(), "made"), t.TempDir()
	open, other, link := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "link")
	err := errors.Join(os.Chmod(private, 0o700), os.Chmod(open, 0o777|os.ModeSticky), os.Symlink(private, link))
	if err := errors.Join(err, MakeDir(made), MakeDir(private)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]os.FileMode{made: 0o755, private: 0o700} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", dir, info.Mode(), err, want)
		}
	}
	for _, dir := range []string{open, link, link + "/"} {
		refusedDir(t, dir)
	}
	t.Run("of another user", func(t *testing.T) {
		testutil.RequireRoot(t)
		if err := os.Chown(other, 12345, -1); err != nil {
			t.Fatal(err)
		}
		refusedDir(t, other)
	})
}

// refusedDir checks that MakeDir rejects a directory, and that no file in it is locked.
func refusedDir(t *testing.T, dir string) {
	t.Helper()
	var unsafe *DirError
	if err := MakeDir(dir); !errors.As(err, &unsafe) || unsafe.Hint() == "" {
		t.Errorf("%s: %v, want a refusal", dir, err)
	}
	if _, err := TakeFile(filepath.Join(dir, "lock")); err == nil {
		t.Errorf("%s: a file in it was locked", dir)
	}
}

// TestLockIsNoLink puts a symbolic link in the place of a lock file. The file to which it leads must not be changed.
func TestLockIsNoLink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "lock")
	if err := errors.Join(os.WriteFile(file, []byte("kept"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := TakeFile(link); err == nil {
		t.Error("the link was locked")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("behind the link: %q, %v", text, err)
	}
}
