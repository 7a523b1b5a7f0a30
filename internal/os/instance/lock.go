// This file is the lock by which an instance has one daemon at most, and by which others see that it has one. A lock
// ends with the process that took it, however that ends.

package instance

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// DefaultDir has a file for each instance that has a daemon. Only root can write and open these: nobody else can take a lock,
// and so keep a daemon from starting.
const DefaultDir = "/run/floodwall"

// Lock is the lock of one instance in the network namespace of the thread that asks: instances of the same directory in other
// namespaces have other locks.
type Lock struct {
	Dir      string // of the files that are locked
	Instance string // the directory of the instance
}

// LockOf is the lock of an instance, by its directory.
func LockOf(instance string) Lock { return Lock{DefaultDir, instance} }

// HeldError says that another process has the lock.
type HeldError struct{ Process int } // its number, 0 when that cannot be told

func (e *HeldError) Error() string {
	if e.Process == 0 {
		return "another daemon runs for this instance"
	}
	return fmt.Sprintf("another daemon runs for this instance: process %d", e.Process)
}

// Hint is what to do.
func (e *HeldError) Hint() string {
	return "one is enough; end it first if this one is to take its place"
}

// file is the file that the daemon of the instance has locked.
func (l Lock) file() (string, error) {
	namespace, err := sockets.Namespace()
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	fmt.Fprintln(h, namespace, filepath.Clean(l.Instance))
	return filepath.Join(l.Dir, fmt.Sprintf("%016x", h.Sum64())), nil
}

// Take takes the lock, until release is called or the process ends, however that happens. It returns a *HeldError when
// another process has it. state and sockets are directories of the daemon, for State and Sockets; "" says nothing.
func (l Lock) Acquire(state, sockets string) (release func(), err error) {
	name, err := l.file()
	if err != nil {
		return nil, err
	}
	dirs := []string{state, sockets}
	for i, dir := range dirs {
		if dir == "" {
			continue
		}
		if dirs[i], err = filepath.Abs(dir); err != nil {
			return nil, lockError(err)
		}
	}
	f, err := lock(name, dirs)
	if err != nil {
		return nil, err
	}
	return func() {
		os.Remove(name)
		os.Remove(l.Dir) // unless there are others
		f.Close()
	}, nil
}

// TakeFile locks a file in the manner of Take. It makes the file and its directory if they are absent, and release removes the
// file.
func TakeFile(name string) (release func(), err error) {
	f, err := lock(name, nil)
	if err != nil {
		return nil, err
	}
	return func() {
		os.Remove(name)
		f.Close()
	}, nil
}

// lock locks the file of a name.
func lock(name string, dirs []string) (*os.File, error) {
	for {
		if f, err := take(name, dirs); f != nil || err != nil {
			return f, err
		}
	}
}

// A file is locked in two ranges: at its first byte by who has the lock, and at the second once it has written the file, which before may have
// what a process has left that was killed. One that locks the file as a whole has both.
const (
	rangeLock    = 0
	rangeWritten = 1
)

// take locks a file, and writes the number of this process and directories into it, a line each. It returns nil when a process that ends has just removed
// the file.
func take(name string, dirs []string) (*os.File, error) {
	f, err := open(name)
	if f == nil || err != nil {
		return nil, lockError(err)
	}
	err = lockRange(f, rangeLock)
	taken := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES)
	there := err == nil && isAt(f, name)
	if there {
		err = errors.Join(writeHolder(f, dirs), lockRange(f, rangeWritten))
	}
	if there && err == nil {
		return f, nil
	}
	f.Close()
	if taken {
		return nil, &HeldError{processIn(name)}
	}
	return nil, lockError(err)
}

// lockRange locks one byte of a file, which may lie behind its end.
func lockRange(f *os.File, at int64) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
}

func lockError(err error) error {
	if err != nil {
		err = fmt.Errorf("lock of the daemon: %w", err)
	}
	return err
}

// open makes the file and its directory if they are absent. It returns nil when a process that ends has just removed them.
func open(name string) (*os.File, error) {
	if err := MakeDir(filepath.Dir(name)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
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
	now, err := os.Lstat(name)
	return err == nil && os.SameFile(opened, now)
}

func writeHolder(f *os.File, dirs []string) error {
	err := f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n%s", os.Getpid(), strings.Join(dirs, "\n"))
	}
	return err
}

// processIn is the process that a lock file names, 0 when it names none.
func processIn(name string) int {
	text, _ := os.ReadFile(name)
	first, _, _ := strings.Cut(string(text), "\n")
	process, _ := strconv.Atoi(first)
	return process
}

// Held reports whether a process has the lock. It only asks, which flock(2) cannot do: to take the lock could keep a daemon
// from starting.
func (l Lock) Held() bool {
	f := l.held(rangeLock)
	if f == nil {
		return false
	}
	f.Close()
	return true
}

// The process that has the lock writes its file at once. State waits for it so long, and looks so often.
const (
	writtenWait  = time.Second
	writtenAgain = time.Millisecond
)

// State is the state directory of the process that has the lock. It is "" when no process has it, and when it does not say.
func (l Lock) State() string { return l.line(1) }

// Sockets is the directory of the sockets of the process that has the lock. It is "" when no process has it, and when it does not say.
func (l Lock) Sockets() string { return l.line(2) }

// line is a line of what the process that has the lock has written, the first of which is 0.
func (l Lock) line(number int) string {
	f := l.held(rangeWritten)
	for end := time.Now().Add(writtenWait); f == nil; f = l.held(rangeWritten) {
		if !l.Held() || time.Now().After(end) {
			return ""
		}
		time.Sleep(writtenAgain)
	}
	defer f.Close()
	text, _ := io.ReadAll(f)
	lines := strings.Split(string(text), "\n")
	if number >= len(lines) {
		return "" // a daemon of a version before
	}
	return lines[number]
}

// held opens the file of the lock, nil when no process has locked that range of it.
func (l Lock) held(at int64) *os.File {
	name, err := l.file()
	if err != nil {
		return nil
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	if unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK {
		return f
	}
	f.Close()
	return nil
}
