// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// onHost is a host on which `floodwall on` runs. It has a default route by fw0, a directory /etc of its own, and a systemctl that only records its
// arguments: no systemd runs in the namespaces of a test. The operator's SSH session comes from 203.0.113.5.
type onHost struct {
	*testing.T
	script, asked string // the files of systemctl, and of its recorded arguments
}

func newOnHost(t *testing.T) *onHost {
	t.Helper()
	dir := t.TempDir()
	h := &onHost{T: t, script: filepath.Join(dir, "bin/systemctl"), asked: filepath.Join(dir, "systemctl.log")}
	writeFile(t, h.script, "#!/bin/sh\necho \"$*\" >>"+h.asked+"\n")
	sh(t, "chmod 755 "+h.script)
	coverEtc(t)
	bootedBySystemd(t)
	t.Setenv("PATH", dir+"/bin:"+os.Getenv("PATH"))
	sh(t, "ip link set lo up; ip link set fw0 address 02:00:00:00:00:02; ip route add default via 192.0.2.254; "+
		"sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.fw0.rp_filter=0")
	writeFile(t, "/proc/self/comm", "nginx")
	return h
}

// nothingLeft checks that nothing is loaded, and that systemctl was not called.
func (h *onHost) nothingLeft() {
	h.Helper()
	if found := testutil.LeftoverPins(); found != nil || h.systemctl() != "" {
		h.Errorf("left behind: %v\n%s", found, h.systemctl())
	}
}

// coverEtc gives the mount namespace of a test a directory /etc of its own, with the same files, in which no policy is.
func coverEtc(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	mountOver(t, "tmpfs", dir, "")
	sh(t, "mkdir "+dir+"/upper "+dir+"/work")
	mountOver(t, "overlay", "/etc", "lowerdir=/etc,upperdir="+dir+"/upper,workdir="+dir+"/work")
	sh(t, "rm -rf /etc/floodwall")
}

// bootedBySystemd makes this mount namespace look as if systemd runs: sd_booted(3) looks for a directory.
func bootedBySystemd(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll("/run/systemd", 0o755); err != nil {
		t.Fatal(err)
	}
	mountOver(t, "tmpfs", "/run/systemd", "mode=0755")
	sh(t, "mkdir /run/systemd/system")
}

// mountOver mounts a file system until the end of the test.
func mountOver(t *testing.T, kind, at, data string) {
	t.Helper()
	if err := unix.Mount(kind, at, kind, 0, data); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
}

// serve listens at TCP addresses.
func (h *onHost) serve(addresses ...string) {
	h.Helper()
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			h.Fatal(err)
		}
		h.Cleanup(func() { l.Close() })
	}
}

// systemctl returns the recorded arguments of systemctl, a line for each call.
func (h *onHost) systemctl() string {
	text, _ := os.ReadFile(h.asked)
	return string(text)
}

// wants checks the verdicts of the loaded policy about packets.
func (h *onHost) wants(when string, verdicts map[string]string) {
	h.Helper()
	for packet, want := range verdicts {
		if got := verdict(h.T, packet); !strings.HasPrefix(got, want) {
			h.Errorf("%s: %s: %s, want %s", when, packet, got, want)
		}
	}
}

// onRun is a running `floodwall on`.
type onRun struct {
	*onHost
	cmd   *exec.Cmd
	in    io.WriteCloser
	said  *lines
	ended chan struct{}
}

func (h *onHost) start(args ...string) *onRun {
	h.Helper()
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // under nohup on would ignore it: a program inherits that, but not a handler
	r := &onRun{onHost: h, cmd: exec.Command("floodwall", append([]string{"on"}, args...)...), said: new(lines), ended: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = r.said, r.said
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		h.Fatal(err)
	}
	if err := testutil.Start(r.cmd); err != nil {
		h.Fatal(err)
	}
	go func() {
		r.cmd.Wait()
		close(r.ended)
	}()
	return r
}

// The texts of the questions.
const (
	firstQuestion  = "? [y/N] "
	secondQuestion = "to keep it; Ctrl-C goes back at once: "
)

// says waits until the command has printed a text.
func (r *onRun) says(text string) {
	r.Helper()
	for !strings.Contains(r.said.String(), text) {
		select {
		case <-r.ended:
			if !strings.Contains(r.said.String(), text) {
				r.Fatalf("on does not say %q:\n%s", text, r.said)
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// enters types a line.
func (r *onRun) enters(text string) {
	r.Helper()
	if _, err := io.WriteString(r.in, text+"\n"); err != nil {
		r.Fatal(err)
	}
}

// ends waits for the end of the command, and checks the exit status.
func (r *onRun) ends(status int) {
	r.Helper()
	select {
	case <-r.ended:
	case <-time.After(10 * time.Minute):
		r.cmd.Process.Kill()
		r.Fatalf("on does not end:\n%s", r.said)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != status {
		r.Errorf("on ended with status %d, not %d:\n%s", got, status, r.said)
	}
}

// done runs on, answers both questions, and returns the output.
func (h *onHost) done(args ...string) string {
	h.Helper()
	r := h.start(args...)
	r.says(firstQuestion)
	r.enters("y")
	r.says(secondQuestion)
	r.enters("")
	r.ends(0)
	return r.said.String()
}
