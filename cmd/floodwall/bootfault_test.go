// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bootHost is a host whose policy is restored after a reboot. An unload that keeps the saved copy simulates the reboot.
type bootHost struct {
	t     *testing.T
	files string
	state string
}

const bootPolicy = `devices: [fw0]
default: drop
checks: off
sets:
  listed: {file: list.txt}
  office: {file: office.txt}
  bad: {names: {file: names.txt}}
rules:
  - {name: VERSION, proto: udp, port: 1, then: drop}
  - {name: listed, from: $listed, then: drop}
  - {name: badname, dns: {name: $bad}, then: drop}
services:
  - {name: ssh, port: tcp/22, from: $office}
  - {name: dns, port: [udp/53, tcp/53], guard: {type: dns, secret: secret.txt}, track: false}
`

func newBootHost(t *testing.T) *bootHost {
	t.Helper()
	const units = "/etc/systemd/system"
	if err := unix.Mount("tmpfs", units, "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(units, unix.MNT_DETACH) })
	t.Setenv("SYSTEMD_OFFLINE", "1")
	dir := t.TempDir()
	h := &bootHost{t, dir, filepath.Join(dir, "state")}
	h.write("list.txt", "198.51.100.0/24\n")
	h.write("office.txt", "203.0.113.0/24\n")
	h.write("names.txt", "bad.example\n")
	h.write("secret.txt", strings.Repeat("0123456789abcdef", 2)+"\n")
	return h
}

func (h *bootHost) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.files, name), []byte(text), 0o600); err != nil { // one of them is a secret
		h.t.Fatal(err)
	}
}

func (h *bootHost) run(args ...string) (string, error) {
	return floodwall(append([]string{"--state", h.state}, args...)...)
}

// apply applies a version of the policy. The parameter more has additional keys of the policy.
func (h *bootHost) apply(version, more string) {
	h.t.Helper()
	h.write("policy.yaml", more+strings.Replace(bootPolicy, "VERSION", version, 1))
	if out, err := h.run("apply", "--boot", filepath.Join(h.files, "policy.yaml")); err != nil {
		h.t.Fatalf("apply: %v\n%s", err, out)
	}
}

// reboot simulates a reboot: it unloads and restores. It returns the output of the restore.
func (h *bootHost) reboot() (string, error) {
	h.t.Helper()
	if out, err := h.run("unload", "--keep-boot"); err != nil && !strings.Contains(out, "nothing is loaded") {
		h.t.Fatalf("unload: %v\n%s", err, out)
	}
	return h.run("apply", "--boot-restore")
}

// wantVerdicts checks the verdicts of the loaded program on packets.
func (h *bootHost) wantVerdicts(when string, want map[string]string) {
	h.t.Helper()
	for packet, wanted := range want {
		if got := verdict(h.t, packet); got != wanted {
			h.t.Errorf("%s: %s: %q, want %q", when, packet, got, wanted)
		}
	}
}

// damage truncates a file of a saved copy to half its size.
func (h *bootHost) damage(link, name string) {
	h.t.Helper()
	file := filepath.Join(h.state, "boot", link, name)
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, info.Size()/2)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestBootFaults deletes, changes and damages the files of a policy. The restore must use the last confirmed policy. If that fails, it must use the
// policy that was confirmed before it. If that also fails, it must use the fail-safe, which lets the operator log in.
func TestBootFaults(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newBootHost(t)
	h.apply("one", "")
	h.apply("two", "")
	entries, err := os.ReadDir(filepath.Join(h.state, "boot", "current") + "/")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is saved with mode %v (%v)", e.Name(), info.Mode(), err)
		}
	}

	whole := map[string]string{
		"udp 192.0.2.9:5 > 192.0.2.1:1":                        "drop two",
		"udp 198.51.100.7:5 > 192.0.2.1:9":                     "drop listed",
		"tcp 203.0.113.9:5 > 192.0.2.1:22 S":                   "pass ssh",
		"udp 192.0.2.9:5 > 192.0.2.1:53 dns=A,www.bad.example": "drop badname",
		"udp 192.0.2.9:5 > 192.0.2.1:53 dns=A,new.example":     "pass dns",
	}
	for _, name := range []string{"names.txt", "secret.txt", "list.txt", "office.txt", "policy.yaml"} {
		h.write(name, "new.example\n") // some of the files are valid with this text, and others are not
	}
	out, err := h.reboot()
	if err != nil {
		t.Fatalf("after files were changed: %v\n%s", err, out)
	}
	h.wantVerdicts("after files were changed", whole)
	for _, name := range []string{"names.txt", "secret.txt", "list.txt", "office.txt", "policy.yaml"} {
		if err := os.Remove(filepath.Join(h.files, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err = h.reboot(); err != nil {
		t.Fatalf("after files were removed: %v\n%s", err, out)
	}
	h.wantVerdicts("after files were removed", whole)

	h.damage("current", "boot.json")
	if out, err = h.run("apply", "--boot-restore"); err == nil || !strings.Contains(out, "what runs stays") {
		t.Errorf("once more, while the policy runs: %v\n%s", err, out)
	}
	h.wantVerdicts("once more, while the policy runs", whole)
	if out, err = h.reboot(); err == nil || !strings.Contains(out, "confirmed before is in force") {
		t.Errorf("with a damaged copy: %v\n%s", err, out)
	}
	whole["udp 192.0.2.9:5 > 192.0.2.1:1"] = "drop one"
	h.wantVerdicts("with a damaged copy", whole)
	for range 2 { // as when a device appears
		if out, err = h.run("apply", "--boot-restore"); err == nil || !strings.Contains(out, "confirmed before is in force") {
			t.Errorf("once more: %v\n%s", err, out)
		}
	}
	h.wantVerdicts("once more", whole)

	h.damage("previous", "policy.yaml")
	if out, err = h.reboot(); err == nil || !strings.Contains(out, "passes what is essential and SSH") {
		t.Errorf("with two damaged copies: %v\n%s", err, out)
	}
	h.wantVerdicts("with two damaged copies", map[string]string{
		"tcp 203.0.113.9:5 > 192.0.2.1:22 S": "pass operator-1",
		"tcp 203.0.113.5:5 > 192.0.2.1:22 S": "pass operator-1",
		"tcp 192.0.2.9:5 > 192.0.2.1:22 S":   "drop default",
		"udp 192.0.2.9:5 > 192.0.2.1:9":      "drop default",
	})
}

// TestBootOpen checks the fail-safe of a policy with `boot: open`.
func TestBootOpen(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newBootHost(t)
	h.apply("one", "boot: open\n")
	h.damage("current", "list1")
	out, err := h.reboot()
	if err == nil || !strings.Contains(out, "nothing is filtered, as the policy says") || attached(t, "fw0") {
		t.Errorf("open: %v, attached %v\n%s", err, attached(t, "fw0"), out)
	}
}

// shell runs a floodwall command in a shell, which can redirect the command's input.
func (h *bootHost) shell(line string) (string, error) {
	out, err := exec.Command("sh", "-c", "floodwall --state "+h.state+" "+line).CombinedOutput()
	return string(out), err
}
