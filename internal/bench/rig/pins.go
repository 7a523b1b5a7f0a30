package bench

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pins is a BPF file system that is mounted nowhere. What is pinned in it is gone when it is closed, or when the
// process ends in any way.
type pins struct{ root *os.File }

func newPins() (*pins, error) {
	fs, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("new BPF file system: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("new BPF file system: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("new BPF file system: %w", err)
	}
	return &pins{os.NewFile(uintptr(fd), "bpf")}, nil
}

// dir is a path of this process to a directory in the file system.
func (p *pins) dir(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", p.root.Fd(), name) }

func (p *pins) close() error { return p.root.Close() }
