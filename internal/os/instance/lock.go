// SPDX-License-Identifier: Apache-2.0

// This file has the lock that limits an instance to one daemon, and that shows other processes whether a daemon runs. When a process ends for any
// reason, the kernel releases its lock.

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

// DefaultDir contains a file for each instance with a daemon. Only root can open these files. So no other user can take a lock and prevent the start
// of a daemon.
const DefaultDir = "/run/floodwall"

// Lock is the lock of one instance in the network namespace of the calling thread. The same directory of the BPF file system in another network
// namespace is another instance, which has another lock.
type Lock struct {
	Dir      string // the directory of the files that are locked
	Instance string // the directory of the instance in the BPF file system
}

// LockOf returns the lock of an instance. instance is the directory of the instance in the BPF file system.
func LockOf(instance string) Lock { return Lock{DefaultDir, instance} }

// HeldError is the error that another process has the lock.
type HeldError struct{ Process int } // its process ID, 0 if unknown

func (e *HeldError) Error() string {
	if e.Process == 0 {
		return "another daemon runs for this instance"
	}
	return fmt.Sprintf("another daemon runs for this instance: process %d", e.Process)
}

// Hint returns the remedy.
func (e *HeldError) Hint() string {
	return "one is enough; end it first if this one is to take its place"
}

// file returns the path of the file that the daemon of the instance locks.
func (l Lock) file() (string, error) {
	namespace, err := sockets.Namespace()
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	fmt.Fprintln(h, namespace, filepath.Clean(l.Instance))
	return filepath.Join(l.Dir, fmt.Sprintf("%016x", h.Sum64())), nil
}

// Acquire takes the lock until release is called or the process ends. If another process has the lock, it returns a *HeldError. state and sockets are
// directories of the daemon, which State and Sockets return in other processes. "" means none.
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
		os.Remove(l.Dir) // fails if other files are in it
		f.Close()
	}, nil
}

// TakeFile locks a file in the same way as Acquire. It creates the file and its directory if they do not exist. release removes the file.
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

// A lock file has two locked ranges of one byte. The holder of the lock locks the first byte. The file may still have the content of a killed
// process, so the holder writes the file and then locks the second byte. A process that locks the whole file has both ranges.
const (
	rangeLock    = 0
	rangeWritten = 1
)

// take locks a file, and writes the process ID and the directories of this process into it, one per line. If another process that ended has removed
// the file, take returns nil.
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

// lockRange locks one byte of a file. The byte may be beyond the end of the file.
func lockRange(f *os.File, at int64) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
}

func lockError(err error) error {
	if err != nil {
		err = fmt.Errorf("lock of the daemon: %w", err)
	}
	return err
}

// open opens the file. It creates the file and its directory if they do not exist. If another process that ended has removed them meanwhile, open
// returns nil.
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

// isAt reports whether an open file still has the given name.
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

// processIn returns the process ID in a lock file. It returns 0 if there is none.
func processIn(name string) int {
	text, _ := os.ReadFile(name)
	first, _, _ := strings.Cut(string(text), "\n")
	process, _ := strconv.Atoi(first)
	return process
}

// Held reports whether a process has the lock. It only tests the lock, which flock(2) cannot do. If it took the lock instead, it could prevent the
// start of a daemon.
func (l Lock) Held() bool {
	f := l.held(rangeLock)
	if f == nil {
		return false
	}
	f.Close()
	return true
}

// The holder of the lock writes its file immediately. State waits at most writtenWait for that, and tests the file at intervals.
const (
	writtenWait  = time.Second
	writtenAgain = time.Millisecond
)

// State returns the state directory of the process that has the lock. It returns "" if no process has the lock, or if the file does not name the
// directory.
func (l Lock) State() string { return l.line(1) }

// Sockets returns the directory of the sockets of the process that has the lock. It returns "" if no process has the lock, or if the file does not
// name the directory.
func (l Lock) Sockets() string { return l.line(2) }

// line returns a line of the lock file, if a process has the lock. The first line has number 0.
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
		return "" // the file was written by an earlier version, which does not write this line
	}
	return lines[number]
}

// held opens the lock file. It returns nil if no process has locked the byte at the offset at.
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
