package sample

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// FileError says why packets are not written to a file, and what to do instead.
type FileError struct{ File, Cause, Remedy string }

func (e *FileError) Error() string { return fmt.Sprintf("capture: %s %s", e.File, e.Cause) }

// Hint is the remedy.
func (e *FileError) Hint() string { return e.Remedy }

// CreateFile opens a file to write packets to, which are nobody else's to read: a new one has mode 0600, and one that there is
// gets it, and is emptied. It is a *FileError when that one belongs to another user, and, in a directory that others can
// write, when it is a symbolic link or has a second name: there, others choose where those lead. Pipes and devices are left
// as they are.
func CreateFile(name string) (*os.File, error) {
	shared, err := writable(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	flags := os.O_WRONLY | os.O_CREATE
	if shared {
		flags |= unix.O_NOFOLLOW
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, &FileError{name, "is a symbolic link in a directory that others can write", "name the file itself, or one in a directory of yours"}
	}
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	if err := own(f, shared); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// own makes a regular file empty and closed to others.
func own(f *os.File, shared bool) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	owner := safefile.Rule{Owners: []int{os.Geteuid()}} // not root for another user: that could not give it another mode
	switch cause := owner.Breach(info); {
	case cause != "":
		return &FileError{f.Name(), cause + ": its owner could read the packets", "remove it, or name another file"}
	case shared && info.Sys().(*syscall.Stat_t).Nlink > 1:
		return &FileError{f.Name(), "has a second name, and others can write its directory", "remove it, or name another file"}
	}
	if info.Mode().Perm()&^0o600 != 0 {
		err = f.Chmod(0o600)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}

// writable reports whether others can write a directory.
func writable(dir string) (bool, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return false, err
	}
	return safefile.Unshared().Breach(info) != "", nil
}
