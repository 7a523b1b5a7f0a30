// SPDX-License-Identifier: Apache-2.0

// This file replaces files atomically: if the process or the machine stops at any time, the disk has the complete old content or the complete new
// content.
//
// google/renameio does less. It does not sync the directory, so a loss of power after its return can restore the old content. It does not remove the
// temporary files of killed writers.

package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// prefix is the beginning of the name of a temporary file. A number follows it.
const prefix = ".floodwall-"

var temporary = wording.Regexp("^" + regexp.QuoteMeta(prefix) + "[0-9]+$")

// foreign returns the error that another user may have written a file, or files in a directory.
func foreign(path, cause string) error {
	return wording.Hinted(path+" "+cause, fmt.Sprintf("look at what is there, then remove it, or `chown -h %d %s` and `chmod go-w %s`; --state names another directory",
		os.Geteuid(), path, path))
}

// Ours returns an error if a file or directory is a link, belongs to a user other than root and this process's user, or is writable by others. It
// returns nil if the path does not exist.
func Ours(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return foreign(path, "is a symbolic link, which may lead to what can be written by others")
	}
	if cause := Unshared().Breach(info); cause != "" {
		return foreign(path, cause)
	}
	return nil
}

// Replace replaces a file, or creates it. The file gets the mode regardless of the umask, and belongs to this process's user. A symbolic link at the
// path is replaced, not followed. If several processes replace a file at once, the file has the complete content of one of them. After an error the
// old content stays, unless only the sync of the directory failed. No temporary file remains. The error names the file.
func Replace(file string, content []byte, mode fs.FileMode) error {
	return ReplaceWith(file, mode, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// ReplaceWith does the same as Replace. The function write writes the content.
func ReplaceWith(file string, mode fs.FileMode, write func(*os.File) error) error {
	dir := filepath.Dir(file)
	Sweep(dir)
	next, err := create(dir)
	if err == nil {
		err = finish(next, file, mode, write)
	}
	return about(file, err)
}

// about replaces the name of the temporary file in an error by the name of the file, which the user knows.
func about(file string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path) && filepath.Dir(path.Path) == filepath.Dir(file) && temporary().MatchString(filepath.Base(path.Path)):
		path.Path = file
	case err != nil && path == nil && !errors.As(err, &link):
		return fmt.Errorf("%s: %w", file, err)
	}
	return err
}

// finish writes a temporary file and renames it. It releases the lock of the temporary file last. Until then Sweep cannot remove the file.
func finish(next *os.File, file string, mode fs.FileMode, write func(*os.File) error) (err error) {
	defer func() {
		if err != nil {
			os.Remove(next.Name())
			next.Close()
		}
	}()
	for _, step := range []func() error{
		func() error { return write(next) },
		func() error { return next.Chmod(mode) },
		next.Sync,
		func() error { return os.Rename(next.Name(), file) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return errors.Join(next.Close(), SyncDir(filepath.Dir(file)))
}

// create creates a temporary file that only its owner can access, and locks it. The lock shows that the writer is alive.
func create(dir string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, prefix+"*")
		if err != nil {
			return nil, err
		}
		var is unix.Stat_t
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && unix.Fstat(int(f.Fd()), &is) == nil && is.Nlink > 0 {
			return f, nil // the file system may have no locks; Sweep then removes no files
		}
		f.Close() // a concurrent Sweep has locked the file, and removes it
	}
}

// Sweep removes temporary files of killed writers from a directory. It keeps the temporary files of running writers. Replace calls Sweep for the
// directory of its file.
func Sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if temporary().MatchString(e.Name()) && e.Type().IsRegular() {
			removeUnlocked(filepath.Join(dir, e.Name()))
		}
	}
}

// removeUnlocked removes a file that no process has locked.
func removeUnlocked(file string) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		os.Remove(file)
	}
}

// Create creates a file. If the file exists, the error is fs.ErrExist. The umask applies to the mode. After any other error, the file does not exist.
func Create(file string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = SyncDir(filepath.Dir(file))
	}
	if err != nil {
		os.Remove(file)
	}
	return err
}

// SyncDir waits until the entries of a directory are on the disk.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, unix.EINVAL) { // the file system does not support sync: CIFS, for example (fsync(2))
		err = nil
	}
	return errors.Join(err, f.Close())
}
