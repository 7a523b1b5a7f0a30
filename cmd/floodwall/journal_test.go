// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestJournal runs the daemon as systemd does, with standard error connected to a real systemd-journald. Events and the audit log must have fields.
// The reason of a ban must stay one value even if it looks like further fields.
func TestJournal(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := startJournald(t)
	const policy = "devices: [fw0]\ndefault: pass\nchecks: off\nsets: {bans: {dynamic: true, max: 10, timeout: 1h}}\nrules: [{name: banned, from: $bans, then: drop}]\n"
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", file)
	daemon := exec.Command("floodwall", "daemon")
	stream, name := journalStream(t)
	daemon.Stdout, daemon.Stderr, daemon.Env = stream, stream, append(os.Environ(), "JOURNAL_STREAM="+name)
	if err := testutil.Start(daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Process.Kill()
		daemon.Wait()
	})
	const why = "guessed\nMESSAGE=forged\nPRIORITY=0\n\x1b[2J"
	waitFor(t, "a ban through the API", func() bool {
		a, err := post(controlSocket, "/v1/block", map[string]any{"prefixes": []string{"203.0.113.7"}, "why": why})
		return err == nil && a.status == http.StatusOK
	})
	var changes []journalEntry
	waitFor(t, "the change in the journal", func() bool {
		changes = journalEntries(t, dir, "FLOODWALL_AUDIT=change")
		return len(changes) == 1
	})
	c := changes[0]
	want := "block 203.0.113.7 why " + why
	if c.text("FLOODWALL_WHAT") != want || c.text("PRIORITY") != "5" || c.text("FLOODWALL_SOCKET") != "control socket" || c.text("SYSLOG_IDENTIFIER") != "floodwall" {
		t.Errorf("the change: %v", c)
	}
	if message := c.text("MESSAGE"); !strings.HasPrefix(message, "level=INFO msg=change uid=") || strings.ContainsAny(message, "\n\x1b") {
		t.Errorf("its text %q", message)
	}
	if list := journalEntries(t, dir, "MESSAGE=forged"); len(list) > 0 {
		t.Errorf("a forged entry: %v", list)
	}
	served := journalEntries(t, dir, "FLOODWALL_EVENT=done", "FLOODWALL_INSTANCE=/sys/fs/bpf/floodwall")
	if len(served) == 0 || !strings.HasPrefix(served[0].text("MESSAGE"), "serving /run/floodwall/read.sock") || served[0].text("PRIORITY") != "6" {
		t.Errorf("events: %v", served)
	}
	if list := journalEntries(t, dir, "_TRANSPORT=stdout"); len(list) > 0 {
		t.Errorf("it also wrote lines: %v", list)
	}
}

// journalStream returns a stream to the journal for standard output and standard error. It also returns the value of $JOURNAL_STREAM for this stream,
// as systemd sets it.
func journalStream(t *testing.T) (*os.File, string) {
	t.Helper()
	c, err := net.Dial("unix", "/run/systemd/journal/stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The lines are: identifier, unit, level, whether lines start with a level, and whether to forward to syslog, kmsg and the console.
	if _, err := c.Write([]byte("floodwall\n\n6\n0\n0\n0\n0\n")); err != nil {
		t.Fatal(err)
	}
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	var is unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &is); err != nil {
		t.Fatal(err)
	}
	return f, fmt.Sprintf("%d:%d", is.Dev, is.Ino)
}

// startJournald starts a journald that is not visible outside of the test's namespaces. It returns the directory of the journal.
func startJournald(t *testing.T) string {
	t.Helper()
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil { // the machine's journal is not for tests
		t.Fatal(err)
	}
	const config = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nForwardToSyslog=no\nForwardToWall=no\n"
	id := filepath.Join(t.TempDir(), "machine-id")
	for name, text := range map[string]string{"/run/systemd/journald.conf.d/test.conf": config, id: "0123456789abcdef0123456789abcdef\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(id, "/etc/machine-id", "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("%v: systemd makes /etc/machine-id", err)
	}
	journald := exec.Command("/lib/systemd/systemd-journald")
	var said bytes.Buffer
	journald.Stderr = &said
	if err := testutil.Start(journald); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		journald.Process.Kill()
		journald.Wait()
		if t.Failed() {
			t.Logf("journald: %s", &said)
		}
		if err := unix.Unmount("/etc/machine-id", 0); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "journald", func() bool {
		_, err := os.Stat("/run/systemd/journal/stdout")
		return err == nil
	})
	return "/run/log/journal"
}

// journalEntry is an entry of a journal. A field that is not valid text is an array of bytes.
type journalEntry map[string]any

func (e journalEntry) text(field string) string {
	switch v := e[field].(type) {
	case string:
		return v
	case []any:
		var text []byte
		for _, b := range v {
			text = append(text, byte(b.(float64)))
		}
		return string(text)
	}
	return ""
}

// journalEntries returns the matching entries from journalctl.
func journalEntries(t *testing.T, dir string, matches ...string) (list []journalEntry) {
	t.Helper()
	out, _ := exec.Command("journalctl", append([]string{"--directory", dir, "--output", "json", "--all", "--quiet"}, matches...)...).Output() // 1 without an entry
	for line := range bytes.Lines(out) {
		var e journalEntry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, e)
	}
	return list
}
