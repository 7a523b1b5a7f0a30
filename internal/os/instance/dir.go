// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// DirError is the error that a directory is unsafe for locks or sockets, because another user could put files or links there.
type DirError struct{ Problem string }

func (e *DirError) Error() string { return e.Problem }

// Hint returns the remedy.
func (e *DirError) Hint() string {
	return "the directory must belong to root or to the user of the daemon, and nobody else may write there: chown and chmod it, or name another one with --run"
}

// MakeDir creates a directory for locks or sockets if it does not exist. All users may access its files by name. Only its owner may create files in
// it. If another user could create a file in the directory, the error is a *DirError. MakeDir does not change the mode of an existing directory, with
// one exception: earlier versions created DefaultDir with mode 0700.
func MakeDir(dir string) error {
	dir = filepath.Clean(dir) // removes a slash at the end, with which a link would be followed
	err := os.Mkdir(dir, 0o755)
	there := errors.Is(err, os.ErrExist)
	if err != nil && !there {
		return err
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, os.ErrNotExist): // another process that ended has removed it
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return &DirError{dir + " is a link, or not a directory"}
	case err != nil:
		return err
	}
	defer f.Close()
	if err := checkDir(f); err != nil || there && dir != DefaultDir {
		return err
	}
	err = f.Chmod(0o755) // the umask may have removed permissions
	if errors.Is(err, os.ErrPermission) && there {
		return nil
	}
	return err
}

// checkDir returns an error unless only root and the user of this process can create files in a directory.
func checkDir(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if cause := safefile.Unshared().Breach(info); cause != "" {
		return &DirError{f.Name() + " " + cause}
	}
	return nil
}
