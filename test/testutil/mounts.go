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

// mountsVar is in the environment of processes that OwnMounts started.
const mountsVar = "FLOODWALL_TEST_MOUNTS"

// OwnMounts runs the tests of a package in a process with a mount namespace of its own, and returns the exit code. The namespace ends
// with the process, and so do the BPF file systems that MountBPF mounts there, with all that is pinned in them, also when the process
// is killed. A package that uses MountBPF has
//
//	func TestMain(m *testing.M) { os.Exit(testutil.OwnMounts(m)) }
//
// Without root, or where root may not, no test can mount anything, so the tests run in this process.
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

// MountBPF mounts a BPF file system for a test, and returns its directory. It is unmounted at the end of the test, or with the
// process. It skips the test as RequireRoot does.
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
