// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// outcome is a testing.TB that records how its test ends.
type outcome struct {
	testing.TB
	ended string
}

func (o *outcome) Helper() {}

func (o *outcome) Skipf(format string, args ...any) {
	o.ended = "skipped: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.ended = "failed: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// run calls a requirement on a thread of its own, and returns how the test ended. If unprivileged is true, the thread is not root.
func run(require func(testing.TB), unprivileged bool) string {
	o := &outcome{ended: "went on"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread and its identity end here
		if unprivileged {
			const nobody = 65534
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
				o.ended = errno.Error()
				return
			}
		}
		require(o)
	}()
	<-done
	return o.ended
}

func TestRequire(t *testing.T) {
	root := os.Geteuid() == 0
	tool := func(name string) func(testing.TB) { return func(tb testing.TB) { RequireTool(tb, name) } }
	for _, tt := range []struct {
		name         string
		require      func(testing.TB)
		unprivileged bool
		demanded     string
		want         string
	}{
		{"tool", tool("sh"), false, "", "went on"},
		{"no tool", tool("no-such-tool"), false, "", "skipped: this test needs the program no-such-tool"},
		{"no tool, demanded", tool("no-such-tool"), false, "1",
			"failed: FLOODWALL_TEST_ROOT=1, but this test needs the program no-such-tool"},
		{"no root", RequireRoot, root, "", "skipped: this test needs root"},
		{"no root, demanded", RequireRoot, root, "1", "failed: FLOODWALL_TEST_ROOT=1, but this test needs root"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.unprivileged {
				RequireRoot(t) // only root can become another user
			}
			t.Setenv("FLOODWALL_TEST_ROOT", tt.demanded)
			if got := run(tt.require, tt.unprivileged); !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRequireRootWithRoot(t *testing.T) {
	if tryNamespace() != nil || os.Geteuid() != 0 {
		RequireRoot(t) // skips, or fails if root is required
		t.Fatal("RequireRoot went on without root")
	}
	if got := run(RequireRoot, false); got != "went on" {
		t.Errorf("got %q with root", got)
	}
}
