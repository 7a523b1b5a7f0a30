package rig

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pins is a BPF file system that is mounted nowhere. Its pins disappear when it is closed, or when the process ends for any reason.
type Pins struct{ Root *os.File }

func newPins() (*Pins, error) {
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
	return &Pins{os.NewFile(uintptr(fd), "bpf")}, nil
}

// dir returns a path of this process to a directory in the file system.
func (p *Pins) dir(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", p.Root.Fd(), name) }

func (p *Pins) close() error { return p.Root.Close() }
