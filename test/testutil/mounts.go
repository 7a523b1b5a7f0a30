// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mountsVar is an environment variable that is set in processes that OwnMounts has started.
const mountsVar = "FLOODWALL_TEST_MOUNTS"

// OwnMounts runs the tests of a package in a process with a mount namespace of its own, and returns the exit code. The namespace ends with the
// process, even if the process is killed. The BPF file systems that MountBPF mounts there, and all pins in them, end with the namespace. A package
// that uses MountBPF has
//
//	func TestMain(m *testing.M) { os.Exit(testutil.OwnMounts(m)) }
//
// If this process may not mount file systems, no test can do so. OwnMounts then runs the tests in this process.
func OwnMounts(m *testing.M) int {
	if os.Geteuid() != 0 || tryNamespace() != nil || os.Getenv(mountsVar) != "" {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), mountsVar+"=own")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel kills the process with the thread that started it
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintf(os.Stderr, "tests in a mount namespace of their own: %v\n", err)
	return 1
}

// MountBPF mounts a BPF file system for a test, and returns its directory. The file system is unmounted at the end of the test, or of the process.
// MountBPF skips the test under the same condition as RequireRoot.
func MountBPF(t testing.TB) (dir string) {
	t.Helper()
	RequireRoot(t)
	if os.Getenv(mountsVar) == "" {
		t.Fatal("TestMain of this package must run testutil.OwnMounts, or a killed test leaves its mounts")
	}
	dir = t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatalf("mounting a BPF file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
