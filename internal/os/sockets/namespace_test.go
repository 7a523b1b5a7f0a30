// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestNamespace checks the namespace of the first thread, and that of a thread that has moved to another network namespace. The other namespace has
// only the loopback device.
func TestNamespace(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	look := func(where string, devices bool) uint64 {
		var s unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
			t.Error(err)
		}
		number, err := Namespace()
		if err != nil || number != s.Ino {
			t.Errorf("%s: namespace %d, %v, not %d", where, number, err, s.Ino)
		}
		text, err := os.ReadFile(ProcFile("dev"))
		if err != nil || strings.Contains(string(text), "fw0:") != devices {
			t.Errorf("%s: %v, devices:\n%s", where, err, text)
		}
		return number
	}
	here := look("here", true)
	if file := ProcFile("dev"); file != "/proc/self/net/dev" {
		t.Errorf("here: %s", file)
	}
	done := make(chan uint64)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread ends with this function
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		done <- look("elsewhere", false)
	}()
	if there := <-done; there == here {
		t.Errorf("both namespaces are %d", here)
	}
}
