// SPDX-License-Identifier: Apache-2.0

// This file has requirements for tests of several packages.

package testutil

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// RequireRoot skips the test unless it may make network namespaces and load BPF programs. If FLOODWALL_TEST_ROOT is 1, as in `make test`, it fails
// the test instead, because a test that is skipped there would never run.
func RequireRoot(tb testing.TB) {
	tb.Helper()
	if unix.Geteuid() != 0 {
		missing(tb, "needs root")
	}
	if err := tryNamespace(); err != nil {
		missing(tb, "needs the right to make network namespaces: %v", err)
	}
}

// RequireTool skips the test unless a program is installed. If FLOODWALL_TEST_ROOT is 1, it fails the test instead.
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

// tryNamespace makes a network namespace, which ends with its thread. It returns an error if this process may not make one.
func tryNamespace() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends here
		result <- unix.Unshare(unix.CLONE_NEWNET)
	}()
	return <-result
}
