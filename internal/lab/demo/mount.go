package demo

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// anonymousMount mounts a new file system, of a type that the kernel knows without a device, at no place of the
// directory tree. The returned directory is its root; the file system is gone when that is closed, and so at the latest
// when the process ends (fsmount(2), since kernel 5.2).
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

// pathOf names a directory that has no path, for this process.
func pathOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
