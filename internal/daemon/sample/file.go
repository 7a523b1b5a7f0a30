// SPDX-License-Identifier: Apache-2.0

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

// FileError is the error when packets cannot be read from or written to a file. It has a remedy.
type FileError struct{ File, Cause, Remedy string }

func (e *FileError) Error() string { return fmt.Sprintf("capture: %s %s", e.File, e.Cause) }

// Hint is the remedy.
func (e *FileError) Hint() string { return e.Remedy }

// CreateFile opens a file to write packets to. Only the owner can read the file. A new file has mode 0600. An existing file gets that mode and is
// emptied. CreateFile returns a *FileError when the existing file belongs to another user. In a directory that others can write, it also refuses a
// symbolic link and a file with a second hard link, because another user may have chosen the target. Pipes and devices are not changed.
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

// own empties a regular file and removes all access by other users.
func own(f *os.File, shared bool) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	owner := safefile.Rule{Owners: []int{os.Geteuid()}} // a file of root is refused for any other user, who could not change the file's mode
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
