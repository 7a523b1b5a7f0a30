// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespaces returns the attributes that start a process in the namespaces of the demonstration. The PID namespace is that of the machine, because
// internal/lab finds kernel threads by their IDs.
func Namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
}

// fleetStateDir is the directory of all files of the demonstration. It is in a file system that furnish mounts.
const fleetStateDir = "/run/floodwall-demo"

// furnish mounts a BPF file system and a tmpfs for files.
func furnish() error {
	for _, m := range []struct{ kind, at, options string }{
		{"bpf", "/sys/fs/bpf", "mode=0700"}, {"tmpfs", "/run", "mode=0755"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.kind, m.at, err)
		}
	}
	return os.Mkdir(fleetStateDir, 0o700)
}
