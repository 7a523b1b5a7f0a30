// This file holds what tests of several packages need.

package testutil

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// RequireRoot skips the test unless it may make network namespaces and load BPF programs. When FLOODWALL_TEST_ROOT is
// 1, as in `make test`, it fails the test instead: there, a test that is skipped would be one that nobody runs.
func RequireRoot(tb testing.TB) {
	tb.Helper()
	if unix.Geteuid() != 0 {
		missing(tb, "needs root")
	}
	if err := tryNamespace(); err != nil {
		missing(tb, "needs the right to make network namespaces: %v", err)
	}
}

// RequireTool skips the test unless the program is installed, under the same condition as RequireRoot.
func RequireTool(tb testing.TB, name string) {
	tb.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(tb, "needs the program %s: %v", name, err)
	}
}

func missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("FLOODWALL_TEST_ROOT") == "1" {
		tb.Fatalf("FLOODWALL_TEST_ROOT=1, but this test "+format, args...)
	}
	tb.Skipf("this test "+format, args...)
}

// tryNamespace makes a network namespace that ends with the thread that made it.
func tryNamespace() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends here
		result <- unix.Unshare(unix.CLONE_NEWNET)
	}()
	return <-result
}
