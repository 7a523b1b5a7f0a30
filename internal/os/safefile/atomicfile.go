// This file replaces files in one step: whenever the process or the machine stops, the disk has the whole of the old content or
// the whole of the new one.
//
// google/renameio does less: it does not sync the directory, so that a loss of power after its return can bring the old content back, and
// the temporary files of killed writers stay for ever.

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

// prefix begins the name of a temporary file. A number follows.
const prefix = ".floodwall-"

var temporary = wording.Regexp("^" + regexp.QuoteMeta(prefix) + "[0-9]+$")

// foreign says that another user can have written a file, or what is in a directory.
func foreign(path, cause string) error {
	return wording.Hinted(path+" "+cause, fmt.Sprintf("look at what is there, then remove it, or `chown -h %d %s` and `chmod go-w %s`; --state names another directory",
		os.Geteuid(), path, path))
}

// Ours returns an error when a file or a directory belongs to a user who is neither this process's nor root, is a link, or can be
// written by others. One that is not there is ours.
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

// Replace replaces a file, or makes it. The file has the mode whatever the umask is, and belongs to this process's user. A link in the place
// of the file is replaced, not followed. Several processes may replace a file at once: one of the contents stays, whole. With an error the
// old content stays, unless just the sync of the directory failed. Nothing else is left. The error names the file.
func Replace(file string, content []byte, mode fs.FileMode) error {
	return ReplaceWith(file, mode, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// ReplaceWith is Replace with the content that a function writes.
func ReplaceWith(file string, mode fs.FileMode, write func(*os.File) error) error {
	dir := filepath.Dir(file)
	Sweep(dir)
	next, err := create(dir)
	if err == nil {
		err = finish(next, file, mode, write)
	}
	return about(file, err)
}

// about has an error name the file in place of the temporary file, which nobody knows.
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

// finish writes a temporary file and gives it its name. It ends the lock of the temporary file last, so that Sweep cannot remove it before.
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

// create makes a temporary file for its owner only, and locks it: the lock says that its writer lives.
func create(dir string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, prefix+"*")
		if err != nil {
			return nil, err
		}
		var is unix.Stat_t
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && unix.Fstat(int(f.Fd()), &is) == nil && is.Nlink > 0 {
			return f, nil // also on a file system without locks: there Sweep removes nothing
		}
		f.Close() // a Sweep came between: it removes the file
	}
}

// Sweep removes temporary files that killed writers have left in a directory. It leaves those of writers that live. Replace sweeps the
// directory of its file.
func Sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if temporary().MatchString(e.Name()) && e.Type().IsRegular() {
			removeUnlocked(filepath.Join(dir, e.Name()))
		}
	}
}

// removeUnlocked removes a file that nobody has locked.
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

// Create makes a file that must not be there: otherwise the error is fs.ErrExist. The umask applies to the mode. With another error the
// file is not there.
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

// SyncDir waits until the disk has the names of a directory.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, unix.EINVAL) { // a file system that has nothing to sync, such as CIFS; fsync(2)
		err = nil
	}
	return errors.Join(err, f.Close())
}
