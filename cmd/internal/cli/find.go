package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Installed are the directories of packages and of `make install`, which only root writes.
var Installed = []string{"/usr/bin", "/usr/local/bin"}

// Find finds another program of Floodwall: beside this one, else where it is installed. It does not ask PATH, which may name a directory
// of somebody else when root runs this program. A file is taken only if whoever can write it could write this program as well. Without
// one it is an fs.ErrNotExist.
func Find(program string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	own, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	err = fs.ErrNotExist
	for _, dir := range append([]string{filepath.Dir(self)}, Installed...) {
		file := filepath.Join(dir, program)
		// A link would lead where others may have put it: in a directory such as /tmp.
		info, failed := os.Lstat(file)
		if failed != nil {
			continue
		}
		if trusted(own, info, os.Geteuid()) {
			return file, nil
		}
		err = wording.WithHint(fmt.Errorf("%s is not run: a user who cannot change %s can change it", file, self),
			fmt.Sprintf("remove it, or have root own it: `chown root:root %s; chmod 755 %[1]s`", file))
	}
	return "", err
}

// trusted reports whether a file is a program that nobody could have written who could not have written this one too. So it is not asked
// who writes the directory: in one with the sticky bit, only the owner of a file replaces it, and in others whoever replaces one
// replaces the other.
func trusted(own, file fs.FileInfo, euid int) bool {
	const group, others = 0o020, 0o002
	a, b := own.Sys().(*syscall.Stat_t), file.Sys().(*syscall.Stat_t)
	mode := file.Mode()
	return mode.IsRegular() && mode.Perm()&0o111 != 0 && mode.Perm()&others == 0 &&
		(b.Uid == 0 || b.Uid == a.Uid || int(b.Uid) == euid) &&
		(mode.Perm()&group == 0 || b.Gid == 0 || b.Gid == a.Gid && own.Mode().Perm()&group != 0)
}

// Get is how to get a program that is not there.
func Get(program string) string {
	return fmt.Sprintf("`apt install %s`, or `make build` in the source", program)
}
