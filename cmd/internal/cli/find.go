// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Installed are the directories in which packages and `make install` put the programs. Only root can write there.
var Installed = []string{"/usr/bin", "/usr/local/bin"}

// Find returns the path of another program of Floodwall, from the directory of this program or from Installed. It does not use PATH: when root runs
// this program, PATH may name another user's directory. Find accepts a file only if every user who can write it could also write this program.
// Otherwise the error is fs.ErrNotExist.
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
		// Stat would follow a symbolic link. In a directory such as /tmp, the link may belong to another user.
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

// trusted reports whether every user who could have written a file could also have written this program. It need not check the directory's owner. In
// a directory with the sticky bit, only the owner of a file can replace the file. In other directories, a user who can replace the file can replace
// this program as well.
func trusted(own, file fs.FileInfo, euid int) bool {
	const group, others = 0o020, 0o002
	a, b := own.Sys().(*syscall.Stat_t), file.Sys().(*syscall.Stat_t)
	mode := file.Mode()
	return mode.IsRegular() && mode.Perm()&0o111 != 0 && mode.Perm()&others == 0 &&
		(b.Uid == 0 || b.Uid == a.Uid || int(b.Uid) == euid) &&
		(mode.Perm()&group == 0 || b.Gid == 0 || b.Gid == a.Gid && own.Mode().Perm()&group != 0)
}

// Get returns instructions to install a missing program.
func Get(program string) string {
	return fmt.Sprintf("`apt install %s`, or `make build` in the source", program)
}
