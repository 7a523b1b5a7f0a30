package instance

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// DirError says that a directory is not one for locks or sockets: another user could put files or links there.
type DirError struct{ Problem string }

func (e *DirError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *DirError) Hint() string {
	return "the directory must belong to root or to the user of the daemon, and nobody else may write there: chown and chmod it, or name another one with --run"
}

// MakeDir makes a directory for locks or sockets if it is absent. Everybody may go through it; nobody but its owner may make a file
// there. Of directories that exist only DefaultDir is changed: versions before made it with mode 0700. A directory where another user
// could make a file is a *DirError.
func MakeDir(dir string) error {
	dir = filepath.Clean(dir) // with a slash at its end, a link would be followed
	err := os.Mkdir(dir, 0o755)
	there := errors.Is(err, os.ErrExist)
	if err != nil && !there {
		return err
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, os.ErrNotExist): // a process that ends has just removed it
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
	err = f.Chmod(0o755) // the umask may have taken rights
	if errors.Is(err, os.ErrPermission) && there {
		return nil
	}
	return err
}

// checkDir makes sure that only root and the user of this process can make files in a directory.
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
