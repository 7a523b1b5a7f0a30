// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/policy"
)

// TestReadsListsOnce counts how often an apply opens a list file. The policy does not say where its service runs, the host forwards packets, and no
// program listens. So only facts about the host determine where the service is.
func TestReadsListsOnce(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("203.0.113.0/24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	opens := countOpens(t, list)
	p, err := policy.Parse("policy.yaml", fmt.Appendf(nil, `devices: [fw0]
sets: {listed: {file: %s}}
rules: [{name: listed, from: $listed, then: drop}]
services: [{name: web, port: tcp/80, syn: protect}]
`, list))
	if err != nil {
		t.Fatal(err)
	}
	applied, err := h.Apply(t.Context(), p, control.ApplyOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(applied.Notes, "\n"); !strings.Contains(text, "one behind this host") {
		t.Errorf("the service is not taken for one behind this host:\n%s", text)
	}
	if n := opens(); n != 1 {
		t.Errorf("the list file was opened %d times, want 1", n)
	}
}

// countOpens returns a function that returns how often a file has been opened since the call of countOpens.
func countOpens(t *testing.T, file string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, file, unix.IN_OPEN|unix.IN_CLOSE_NOWRITE); err != nil {
		t.Fatal(err)
	}
	return func() int {
		// An event of the file itself has no name, so all events have the same size. The kernel merges two equal events that follow each other. The
		// end of a reading is also an event, and separates two openings.
		events := make([]byte, 1<<16)
		n, err := unix.Read(fd, events)
		if err == unix.EAGAIN {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return n / unix.SizeofInotifyEvent / 2
	}
}
