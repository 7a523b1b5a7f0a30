// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// newLate makes a device that is up from the moment it exists. Its address 192.0.2.1 is on the loopback device, so the host has it all the time.
const newLate = "ip link add fw0 type veth peer name fw1; ip link set fw1 up; ip link set fw0 up\n"

// lateHost returns a host whose only device is removed before a boot. The sender sends whenever the other end of the device exists.
func lateHost(t *testing.T) (w *watch, state string) {
	t.Helper()
	if err := unix.Mount("tmpfs", "/etc/systemd/system", "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount("/etc/systemd/system", unix.MNT_DETACH) })
	t.Setenv("SYSTEMD_OFFLINE", "1")
	w = newWatch(t)
	w.sh("ip link set lo up; ip addr add 192.0.2.1/32 dev lo")
	return w, filepath.Join(t.TempDir(), "state")
}

// boot applies a policy and simulates a boot: it unloads the policy, deletes the device, and restores. The restore must fail.
func (w *watch) boot(state, target, setting string) (said string) {
	w.Helper()
	text := strings.Replace(lifePolicy, "[fw0, fx0]", "[fw0]", 1) + "boot: " + setting + "\n"
	if err := os.WriteFile(w.policy, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	mustFloodwall(w.T, "apply", w.policy, "--boot", "--target", target, "--state", state)
	mustFloodwall(w.T, "unload", "--keep-boot", "--state", state)
	w.sh("ip link del fw0")
	said, err := floodwall("apply", "--boot-restore", "--state", state)
	if exitCode(err) != 1 {
		w.Errorf("apply --boot-restore without the device: %v\n%s", err, said)
	}
	return said
}

// sending waits until more packets are sent. It returns the number of packets that arrived since the count before.
func (w *watch) sending(before uint64) uint64 {
	w.Helper()
	sent := w.sent.Load()
	w.until("nothing is sent", func() bool { return w.sent.Load() > sent+50 })
	return w.received.Load() - before
}

// loopback opens a connection of the host to itself.
func (w *watch) loopback() {
	w.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.DialTimeout("tcp4", listener.Addr().String(), filteredAgain)
	if err != nil {
		w.Fatalf("the loopback device is cut: %v", err)
	}
	conn.Close()
}

// TestLateDeviceIsClosed makes the policy's only device appear after boot. Packets that the policy drops arrive from the first moment on. None may
// pass, neither before the policy is in force nor later. The loopback device must keep working.
func TestLateDeviceIsClosed(t *testing.T) {
	if !inside(t) {
		return
	}
	w, state := lateHost(t)
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		said := w.boot(state, target, "closed")
		before := w.received.Load()
		w.sh(newLate)
		if passed := w.sending(before); passed > 0 {
			t.Errorf("%s: %d packets came in before the policy was in force; restore said\n%s", target, passed, said)
		}
		w.loopback()
		runUnit(t, "floodwall-device.service", "ExecStart")
		if passed := w.sending(before); passed > 0 {
			t.Errorf("%s: %d packets came in until the policy was in force", target, passed)
		}
		mustFloodwall(t, "status", "--state", state)
		w.sh("! nft list tables | grep -q floodwall-late")
		w.sh(`sed -i s/198.51.100.0/198.51.101.0/ ` + w.policy)
		mustFloodwall(t, "apply", w.policy, "--state", state)
		w.arrives() // by the policy's own verdicts
		mustFloodwall(t, "unload", "--state", state)
	}
}

// TestLateDevicesInTurn uses two late devices, of which only one appears. The policy must decide about packets of this device. The other device must
// stay closed.
func TestLateDevicesInTurn(t *testing.T) {
	if !inside(t) {
		return
	}
	w, state := lateHost(t)
	text := strings.Replace(lifePolicy, "198.51.100.0", "198.51.101.0", 1) + "boot: closed\n" // passes the sender's packets
	if err := os.WriteFile(w.policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", w.policy, "--boot", "--state", state)
	mustFloodwall(t, "unload", "--keep-boot", "--state", state)
	w.sh("ip link del fw0; ip link del fx0")
	floodwall("apply", "--boot-restore", "--state", state)
	w.sh("nft list chain inet floodwall-late input | grep -q 'iifname != { \"fw0\", \"fx0\" }'")
	before := w.received.Load()
	w.sh(newLate)
	if passed := w.sending(before); passed > 0 {
		t.Errorf("%d packets came in before the policy was in force", passed)
	}
	if out, err := floodwall("apply", "--boot-restore", "--state", state); exitCode(err) != 1 || !strings.Contains(out, "not there yet: fx0 (closed") {
		t.Errorf("restore with one of two devices: %v\n%s", err, out)
	}
	w.arrives()
	w.sh("nft list chain inet floodwall-late input | grep -q 'iifname != \"fx0\"'")
	mustFloodwall(t, "unload", "--state", state)
}

// TestLateDeviceStaysClosed makes the restore on a late device fail. The fail-safe must stay until unload. With `boot: open` there must be no
// fail-safe.
func TestLateDeviceStaysClosed(t *testing.T) {
	if !inside(t) {
		return
	}
	w, state := lateHost(t)
	if said := w.boot(state, "nftables", "closed"); !strings.Contains(said, "fw0 (closed until they are filtered, but for SSH and what is essential)") {
		t.Errorf("restore said\n%s", said)
	}
	before := w.received.Load()
	w.sh(newLate)
	w.sh("mkdir -p " + state + "/away; mv " + state + "/boot " + state + "/away")
	if out, err := floodwall("repair", "--boot-restore", "--state", state); exitCode(err) != 1 {
		t.Errorf("a restore without copies: %v\n%s", err, out)
	}
	if passed := w.sending(before); passed > 0 {
		t.Errorf("%d packets came in after the restore had failed", passed)
	}
	w.sh("nft list table inet floodwall-late | grep -q 'dport 22 .*accept'")
	w.sh("! nft list table inet floodwall-late | grep -q 'ct state'") // such a rule would make conntrack follow all packets of the host
	mustFloodwall(t, "unload", "--state", state)
	w.arrives()

	if said := w.boot(state, "nftables", "open"); !strings.Contains(said, "fw0 (open until they are filtered, as the policy says: boot: open)") {
		t.Errorf("restore said\n%s", said)
	}
	w.sh(newLate)
	w.arrives()
	w.sh("! nft list tables | grep -q floodwall-late")
}
