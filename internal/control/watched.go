package control

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// WatchedError says that another process watches the instance already.
type WatchedError struct{ Process int } // its number, 0 when that cannot be told

func (e *WatchedError) Error() string {
	if e.Process == 0 {
		return "another daemon runs for this instance"
	}
	return fmt.Sprintf("another daemon runs for this instance: process %d", e.Process)
}

// Hint is what to do.
func (e *WatchedError) Hint() string {
	return "one is enough; end it first if this one is to take its place"
}

// lockDir has a file for each instance that is watched. It is root's: nobody else can take a lock, and so keep the daemon
// from starting.
var lockDir = "/run/floodwall"

// lockFile is the file that who watches has locked. As an instance does, it belongs to a network namespace.
func (in Instance) lockFile() (string, error) {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return "", fmt.Errorf("network namespace: %w", err)
	}
	h := fnv.New64a()
	fmt.Fprintln(h, ns.Ino, filepath.Clean(in.Dir))
	return filepath.Join(lockDir, fmt.Sprintf("%016x", h.Sum64())), nil
}

// alone makes this process the one that watches, until end is called or the process ends, however that happens.
func (in Instance) alone() (end func(), err error) {
	name, err := in.lockFile()
	if err != nil {
		return nil, err
	}
	for {
		f, err := lockAt(name)
		if err != nil {
			return nil, err
		}
		if f != nil {
			return func() {
				os.Remove(name)
				os.Remove(lockDir) // unless there are others
				f.Close()
			}, nil
		}
	}
}

// lockAt locks a file and writes this process into it. It returns nil when one that ends has just removed the file.
func lockAt(name string) (*os.File, error) {
	f, err := openLock(name)
	if f == nil || err != nil {
		return nil, lockError(err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	taken := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES)
	there := err == nil && isAt(f, name)
	if there {
		err = writeProcess(f)
	}
	if there && err == nil {
		return f, nil
	}
	f.Close()
	if taken {
		return nil, &WatchedError{processIn(name)}
	}
	return nil, lockError(err)
}

func lockError(err error) error {
	if err != nil {
		err = fmt.Errorf("lock of the daemon: %w", err)
	}
	return err
}

// openLock makes the file and its directory if they are absent. It returns nil when one that ends has just removed them.
func openLock(name string) (*os.File, error) {
	if err := os.Mkdir(lockDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// isAt reports whether a file still has the name that it was opened by.
func isAt(f *os.File, name string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(name)
	return err == nil && os.SameFile(opened, now)
}

func writeProcess(f *os.File) error {
	err := f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	return err
}

// processIn is the process that a lock file names, 0 when it names none.
func processIn(name string) int {
	text, _ := os.ReadFile(name)
	process, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return process
}

// watched reports whether a process watches the instance. It only asks for the lock, which flock(2) has no way to: taking
// it would be in the way of a daemon that starts.
func (in Instance) watched() bool {
	name, err := in.lockFile()
	if err != nil {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}
