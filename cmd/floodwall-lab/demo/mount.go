// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// anonymousMount mounts a new file system that has no place in the directory tree. The parameter kind is a type of file system that needs no device.
// The result root is the root directory of the file system. The file system ends when root is closed, or when the process ends (fsmount(2), since
// kernel 5.2).
func anonymousMount(kind string) (root *os.File, err error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("file system %s: %w", kind, err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("file system %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("file system %s: mount: %w", kind, err)
	}
	return os.NewFile(uintptr(fd), pathOf(fd)), nil
}

// pathOf returns a path by which this process can access a directory that has no path.
func pathOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
