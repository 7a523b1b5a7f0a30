// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// unitRights are the capabilities that the program needs. Its systemd units have exactly these.
const unitRights = "+bpf,+net_admin,+perfmon"

// asUser runs commands as another user with few capabilities.
type asUser struct {
	t      *testing.T
	uid    int
	rights string // as setpriv(1) writes them
	binary string
	state  string
	files  string
}

// newUser makes a BPF file system that a user can write, and directories for its files and state.
func newUser(t *testing.T, uid int, rights string) *asUser {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // root without CAP_DAC_OVERRIDE has no access to directories of other users
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u := &asUser{t, uid, rights, filepath.Join(dir, "floodwall"), filepath.Join(dir, "state"), dir}
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(u.binary, self, 0o755)
	}
	if err == nil {
		err = os.Mkdir(u.state, 0o700)
	}
	for _, path := range []string{u.state, "/sys/fs/bpf"} {
		err = errors.Join(err, os.Chown(path, uid, uid))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chown("/sys/fs/bpf", os.Geteuid(), os.Getegid()) })
	return u
}

// command returns a command that runs as the user.
func (u *asUser) command(args ...string) *exec.Cmd {
	id := fmt.Sprint(u.uid)
	line := []string{"--reuid=" + id, "--regid=" + id, "--clear-groups", "--inh-caps=-all," + u.rights,
		"--bounding-set=-all," + u.rights, "--ambient-caps=-all," + u.rights, u.binary, "--state=" + u.state}
	cmd := exec.Command("setpriv", append(line, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return cmd
}

func (u *asUser) run(args ...string) (string, error) {
	out, err := u.command(args...).CombinedOutput()
	return string(out), err
}

// must runs a command that must succeed and print the text want.
func (u *asUser) must(want string, args ...string) {
	u.t.Helper()
	out, err := u.run(args...)
	if err != nil || !strings.Contains(out, want) {
		u.t.Fatalf("user %d with %s: floodwall %s: %v, want %q in\n%s", u.uid, u.rights, strings.Join(args, " "), err, want, out)
	}
}

// fails runs a command that must fail and print the text want.
func (u *asUser) fails(want string, args ...string) {
	u.t.Helper()
	out, err := u.run(args...)
	if err == nil || !strings.Contains(out, want) {
		u.t.Fatalf("user %d with %s: floodwall %s: %v, want an error with %q in\n%s", u.uid, u.rights, strings.Join(args, " "), err, want, out)
	}
}

// policy writes a policy for devices that drops UDP to a port, and returns its path.
func (u *asUser) policy(devices string, port int) string {
	u.t.Helper()
	file := filepath.Join(u.files, fmt.Sprintf("%s-%d.yaml", strings.ReplaceAll(devices, ", ", "-"), port))
	text := fmt.Sprintf("devices: [%s]\ndefault: pass\nchecks: off\nsets: {bans: {dynamic: true, max: 100}}\nrules:\n"+
		"  - {name: listed, from: $bans, then: drop}\n  - {name: port%d, proto: udp, port: %d, then: drop}\n", devices, port, port)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		u.t.Fatal(err)
	}
	return file
}

// dropped sends a packet to a port from the other end of fw0. It reports whether the rule for the port has counted the packet.
func (u *asUser) dropped(port int) bool {
	u.t.Helper()
	rule := fmt.Sprintf("port%d", port)
	before := u.counted(rule)
	if err := testutil.Send("fw1", fmt.Sprintf("udp 198.51.100.1:9 > 192.0.2.1:%d", port), 1); err != nil {
		u.t.Fatal(err)
	}
	return testutil.Eventually(filteredAgain, func() bool { return u.counted(rule) > before })
}

// counted returns the counter of a rule in the status, or "" if there is no such rule.
func (u *asUser) counted(rule string) string {
	out, _ := u.run("status")
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[0] == rule {
			return fmt.Sprintf("%9s", fields[3])
		}
	}
	return ""
}

// eachUser runs a test twice with exactly the units' capabilities: as a user who is not root, and as root with a limited bounding set.
func eachUser(t *testing.T, test func(t *testing.T, u *asUser)) {
	t.Helper()
	if !inside(t) {
		return
	}
	testutil.RequireTool(t, "setpriv")
	testutil.Veth(t, "fw2", "fw3")
	for _, uid := range []int{1234, 0} {
		u := newUser(t, uid, unitRights)
		test(t, u)
		u.run("unload")
	}
}

// TestUndoneWithUnitRights makes an apply, a trial and a rollback fail on the second of two devices. The first device must keep its previous state.
func TestUndoneWithUnitRights(t *testing.T) {
	eachUser(t, func(t *testing.T, u *asUser) {
		both, one, two := u.policy("fw0, fw2", 1), u.policy("fw0", 2), u.policy("fw0, fw2", 3)
		u.must("generation 1 on fw0 (xdp, native), fw2", "apply", both)
		u.must("generation 2 on fw0", "apply", one)
		detach, err := testutil.Occupy("fw2")
		if err != nil {
			t.Fatal(err)
		}
		defer detach()
		for _, args := range [][]string{
			{"apply", "--target", "xdp", two}, {"apply", "--target", "xdp", "--confirm", "60s", two}, {"rollback"},
		} {
			u.fails("another XDP program is attached", args...)
			if out, err := u.run("status"); err != nil || !strings.Contains(out, "generation 2,") || strings.Contains(out, "warning") {
				t.Fatalf("after %v was refused, status: %v\n%s", args, err, out)
			}
			if !u.dropped(2) {
				t.Errorf("after %v was refused, the policy before does not decide", args)
			}
		}
	})
}

// TestLifeWithUnitRights runs all commands with the units' capabilities. For iptables, the error must name the missing capability. With that
// capability, the command must work.
func TestLifeWithUnitRights(t *testing.T) {
	eachUser(t, func(t *testing.T, u *asUser) {
		first, second := u.policy("fw0, fw2", 1), u.policy("fw0, fw2", 2)
		for _, target := range []string{"xdp", "nftables"} {
			u.must("applied", "apply", "--target", target, first)
			u.must("blocked 1", "block", "198.51.100.7")
			u.must("198.51.100.7", "blocked")
			u.must("", "unblock", "198.51.100.7")
			u.must("on trial", "apply", "--target", target, "--confirm", "60s", second)
			u.must("confirmed", "confirm")
			if !u.dropped(2) {
				t.Errorf("%s: the policy does not decide", target)
			}
			u.must("rolled back", "rollback")
			if !u.dropped(1) {
				t.Errorf("%s: the policy that was returned to does not decide", target)
			}
			u.must("unloaded", "unload")
		}
		if u.uid == 0 {
			return
		}
		u.fails("CAP_NET_RAW is missing", "apply", "--target", "iptables", first)
		u.rights += ",+net_raw"
		u.must("applied", "apply", "--target", "iptables", first)
		u.must("blocked 1", "block", "198.51.100.7")
		u.must("target iptables", "status")
	})
}

// TestMissingRight runs apply without CAP_PERFMON. The message must name the missing capability, and nothing may be loaded.
func TestMissingRight(t *testing.T) {
	if !inside(t) {
		return
	}
	testutil.RequireTool(t, "setpriv")
	u := newUser(t, 1234, "+bpf,+net_admin")
	file := u.policy("fw0", 1)
	for _, target := range []string{"auto", "xdp"} {
		u.fails("loading the XDP program: CAP_PERFMON is missing", "apply", "--target", target, file)
	}
	if found := testutil.LeftoverPins(); found != nil {
		t.Errorf("left behind: %v", found)
	}
	u.must("applied", "apply", "--target", "nftables", file)
	u.must("unloaded", "unload")
}
