// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// The tests of this file check that a policy stays in force during events on a host: devices disappear and return, other tools flush netfilter, the
// daemon is killed. All the time, a sender sends packets that the policy drops. A socket of this host shows whether they arrive.

// lifePolicy drops the sender's packets. The packets arrive on fw0. fx0 is a second device.
const lifePolicy = `devices: [fw0, fx0]
default: pass
checks: off
sets: {listed: [198.51.100.0/24], bans: {dynamic: true, max: 300}}
rules:
  - {name: flood, proto: udp, port: 9, from: $listed, then: drop}
  - {name: banned, from: $bans, then: drop}
  - {name: late, state: invalid, then: drop}
`

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// newDevice is a script that makes the device fw0 again.
const newDevice = "ip link add fw0 type veth peer name fw1; ip link set fw1 up; ip addr add 192.0.2.1/24 dev fw0\n"

// TestDevices removes devices and adds them again while the daemon runs.
func TestDevices(t *testing.T) {
	if !inside(t) {
		return
	}
	w := newWatch(t)
	w.arrives()
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", w.policy, "--target", target)
		w.filtered()
		stop := w.daemon()
		// On XDP the daemon attaches the program while the device is down, so no packet may pass.
		none := []struct{ name, does string }{
			{"deleted, and made again", "ip link del fw0\n" + newDevice + w.attached(target) + "ip link set fw0 up"},
			{"renamed, and another has its name", "ip link set fw0 down; ip link set fw1 name fw2\nip link set fw0 name was0\n" + newDevice +
				w.attached(target) + "ip link set fw0 up; ip link del was0"},
			{"its MTU, carrier and address", "ip link set fw0 mtu 1400; ip link set fw1 down; ip link set fw1 up\nip link set fw0 address 02:00:00:00:00:77"},
		}
		for _, row := range none {
			if passed := w.event(target+": "+row.name, func() { w.sh(row.does) }); passed > 0 {
				t.Errorf("%s: %s: %d packets passed", target, row.name, passed)
			}
		}
		w.event(target+": deleted, and made again up at once", func() { w.sh("ip link del fw0\n" + newDevice + "ip link set fw0 up") })
		w.event(target+": moved away and back", func() {
			w.sh("ip link del fw0; ip link add fw0 type veth peer name fw1; ip link set fw1 up; ip link set fw0 netns " + elsewhere(t) +
				"\nip link add fw0 type dummy 2>/dev/null || true; ip link del fw0 2>/dev/null || true")
			w.sh("nsenter --net=" + otherNet + " ip link set fw0 netns " + fmt.Sprint(os.Getpid()) + "\nip addr add 192.0.2.1/24 dev fw0; ip link set fw0 up")
		})
		if target == "xdp" {
			if out, err := exec.Command("ip", "link", "set", "dev", "fw0", "xdp", "off").CombinedOutput(); err == nil {
				t.Errorf("`ip link set xdp off` was not refused: %s", out)
			}
			w.event(target+": its link detached by bpftool", func() { w.detach("fw0") })
		}
		stop()
		floodwall("unload")
	}
}

// TestDeviceReturnsOnTrial removes the device and adds it again during a trial. After the trial, or after a rollback, the previous policy must be in
// force on the device.
func TestDeviceReturnsOnTrial(t *testing.T) {
	if !inside(t) {
		return
	}
	w := newWatch(t)
	w.arrives()
	one := strings.Replace(lifePolicy, "[fw0, fx0]", "[fw0]", 1) // with no other device that remembers the policy
	other := filepath.Join(t.TempDir(), "other.yaml")
	err := errors.Join(os.WriteFile(w.policy, []byte(one), 0o600), os.WriteFile(other, []byte(strings.ReplaceAll(one, "flood,", "other,")), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", w.policy, "--target", "xdp")
	w.daemon()
	for _, trial := range []string{"3s", "5m"} {
		mustFloodwall(t, "apply", other, "--target", "xdp", "--confirm", trial)
		w.event("returned on trial", func() { w.sh("ip link del fw0\n" + newDevice + "ip link set fw0 up") })
		if trial == "5m" {
			mustFloodwall(t, "rollback")
		}
		w.until("the policy before is not in force", func() bool {
			out, err := floodwall("status")
			return err == nil && strings.Contains(out, "flood ") && !strings.Contains(out, "on trial")
		})
		w.filtered()
	}
}

// attached returns a shell command that waits for the program on fw0. Netfilter needs no wait.
func (w *watch) attached(target string) string {
	if target != "xdp" {
		return ""
	}
	return "for i in $(seq 600); do ip link show fw0 | grep -q xdp && break; sleep 0.05; done\n"
}

// detach detaches the XDP program of a device with bpftool.
func (w *watch) detach(device string) {
	w.Helper()
	dev, err := net.InterfaceByName(device)
	if err != nil {
		w.Fatal(err)
	}
	id := datapath.LinkOf(dev.Index, ebpf.ProgramID(xdpOn(device)))
	if id == 0 {
		w.Fatalf("device %s has no program that is attached by a link", device)
	}
	w.sh(fmt.Sprintf("bpftool link detach id %d", id))
}

// xdpOn returns the ID of the XDP program on a device, or 0 if there is none.
func xdpOn(device string) int {
	dev, err := netlink.LinkByName(device)
	if err != nil || dev.Attrs().Xdp == nil {
		return 0
	}
	return int(dev.Attrs().Xdp.ProgId)
}

// otherNet is the path of the network namespace that elsewhere makes.
var otherNet string

// elsewhere starts a process in a new network namespace, and returns its process ID.
func elsewhere(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	ours, _ := os.Readlink("/proc/self/ns/net")
	otherNet = fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	for {
		if theirs, err := os.Readlink(otherNet); err == nil && theirs != ours {
			return fmt.Sprint(cmd.Process.Pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// flushes are the commands with which other firewall managers flush rules. The packages of these managers need a system bus or root's files, so the
// test has copies of their commands: of nftables.service of Debian, ufw-init flush-all, firewalld's flush with its iptables backend, and
// netfilter-persistent with iptables-restore.
var flushes = map[string][]struct{ name, does string }{
	"nftables": {
		{"nft flush ruleset (nftables.service stop)", "nft flush ruleset"},
		{"nft -f /etc/nftables.conf (its start)", "printf 'flush ruleset\\ntable inet filter {\\n chain input {\\n type filter hook input priority 0;\\n }\\n}\\n' | nft -f -"},
		{"nft flush table", "nft flush table inet $(nft list tables inet | sed -n 's/table inet \\(floodwall-.*\\)/\\1/p')"},
		{"nft delete table, of that for tagged frames", "nft delete table netdev $(nft list tables netdev | sed -n 's/table netdev \\(floodwall-.*\\)/\\1/p')"},
	},
	"iptables": {
		{"iptables -F, as ufw-init flush-all", "for t in raw filter; do iptables -t $t -F; iptables -t $t -X || true; done"},
		{"iptables -F of raw alone, as firewalld", "iptables -t raw -F PREROUTING"},
		{"iptables-restore, as netfilter-persistent", "printf '*raw\\n:PREROUTING ACCEPT [0:0]\\nCOMMIT\\n*filter\\n:INPUT ACCEPT [0:0]\\nCOMMIT\\n' | iptables-restore"},
		{"ipset flush", "ipset flush"},
		{"ipset swap, for a set of other size", "set=$(ipset list -n | grep listed-4); ipset create other hash:net family inet; ipset swap other $set; ipset destroy other"},
		{"ipset destroy, and a set of another type", otherType},
		{"a set of another type, and the rules restored", "saved=$(mktemp -d); for t in raw filter; do iptables-save -t $t >$saved/$t; done\n" + otherType +
			"\nfor t in raw filter; do iptables-restore <$saved/$t; done; rm -r $saved"},
	},
}

// otherType replaces a set of the policy by an empty set of another type. It tries again when the daemon repairs in between.
const otherType = "set=$(ipset list -n | grep listed-4)\n" +
	"until for t in raw filter; do iptables -t $t -F; ip6tables -t $t -F; done; ipset destroy $set 2>/dev/null && ipset create $set hash:ip family inet 2>/dev/null; do :; done"

// docker has the commands that Docker runs at its start. They flush no rules of other programs.
const docker = `iptables -t nat -N DOCKER; iptables -N DOCKER; iptables -N DOCKER-USER; iptables -A DOCKER-USER -j RETURN
iptables -I FORWARD -j DOCKER-USER; iptables -P FORWARD DROP; iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
`

// TestFlushes flushes netfilter as other programs do, with and without a running daemon.
func TestFlushes(t *testing.T) {
	for _, target := range []string{"nftables", "iptables"} {
		t.Run(target, func(t *testing.T) {
			if inside(t) {
				flushed(t, target)
			}
		})
	}
}

// flushed runs TestFlushes on one target.
func flushed(t *testing.T, target string) {
	w := newWatch(t)
	state := filepath.Join(t.TempDir(), "state")
	mustFloodwall(t, "apply", w.policy, "--target", target, "--state", state)
	w.filtered()
	mustFloodwall(t, "block", "203.0.113.77", "--state", state)
	for i, flush := range flushes[target] {
		if i%2 == 1 && !testutil.Long() { // the daemon repairs these, too
			continue
		}
		w.sh(flush.does)
		if i == 0 {
			w.arrives()
			w.open("floodwall repair")
		}
		if out, err := floodwall("status"); exitCode(err) != 1 {
			t.Errorf("%s: after %s status ends with %d:\n%s", target, flush.name, exitCode(err), out)
		}
		if out := mustFloodwall(t, "repair", "--state", state); !strings.Contains(out, "repaired: ") {
			t.Errorf("%s: after %s repair says %s", target, flush.name, out)
		}
		mustFloodwall(t, "status")
	}
	w.filtered()
	if out := mustFloodwall(t, "blocked"); !strings.Contains(out, "203.0.113.77") {
		t.Errorf("%s: after the repairs a ban is lost:\n%s", target, out)
	}
	stop := w.daemon("--state", state)
	for _, flush := range flushes[target] {
		w.event(target+": "+flush.name, func() { w.sh(flush.does) })
	}
	if passed := w.event(target+": Docker starts", func() { w.sh(docker) }); passed > 0 {
		t.Errorf("%s: %d packets passed while Docker started", target, passed)
	}
	w.sh("nft flush ruleset")
	w.filtered()
	if out := mustFloodwall(t, "status"); !strings.Contains(out, "repaired ") {
		t.Errorf("%s: status does not count repairs:\n%s", target, out)
	}
	stop()
	floodwall("unload")
}

// TestDeviceWithoutDaemon removes one of two devices and adds it again while no daemon runs.
func TestDeviceWithoutDaemon(t *testing.T) {
	if !inside(t) {
		return
	}
	w := newWatch(t)
	mustFloodwall(t, "apply", w.policy, "--target", "xdp")
	w.filtered()
	w.sh("ip link del fw0")
	w.open("device fw0 has gone")
	w.sh(newDevice + "ip link set fw0 up")
	w.arrives()
	w.open("device fw0 is not filtered")
	mustFloodwall(t, "repair")
	w.filtered()
	mustFloodwall(t, "status")

	// A device whose driver has no XDP now has the name fw0.
	w.sh("ip link del fw0; ip link add fw1 type veth peer name under0; ip link add fw0 type bridge; ip link set under0 master fw0\n" +
		"ip link set under0 up; ip link set fw1 up; ip addr add 192.0.2.1/24 dev fw0; ip link set fw0 up")
	w.arrives()
	if out := mustFloodwall(t, "repair"); !strings.Contains(out, "(generic)") && !strings.Contains(out, "(tc)") {
		t.Errorf("repair of a device without XDP in its driver: %s", out)
	}
	w.filtered()

	// All devices have been removed.
	w.sh("ip link del under0; ip link del fw0; ip link del fx0")
	w.open("what was filtered has gone")
	w.sh(newDevice + "ip link set fw0 up\nip link add fx0 type veth peer name fx1")
	w.open("device fw0 is there again, and is not filtered")
	mustFloodwall(t, "repair")
	w.filtered()
	mustFloodwall(t, "status")
}

// TestKilledKeeper kills the daemon at random moments while other programs flush netfilter. The file system of the state is full. The next daemon
// must restore the policy.
func TestKilledKeeper(t *testing.T) {
	if !inside(t) {
		return
	}
	random := testutil.Random(t)
	w := newWatch(t)
	state := filepath.Join(t.TempDir(), "state")
	err := os.Mkdir(state, 0o700)
	if err == nil {
		err = unix.Mount("tmpfs", state, "tmpfs", 0, "size=64k")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(state, unix.MNT_DETACH) })
	for i := range testutil.Scaled(3, 200) {
		target := []string{"nftables", "iptables", "xdp"}[i%3]
		mustFloodwall(t, "apply", w.policy, "--target", target, "--state", state)
		w.sh("head -c 1000000 /dev/zero >" + state + "/full 2>/dev/null || true")
		w.filtered()
		kill := w.daemon("--state", state)
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		w.sh(slices.Concat(flushes["nftables"][:1], flushes["iptables"][:1])[i%2].does + "\nip link del fw0\n" + newDevice + "ip link set fw0 up")
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		kill()
		w.event(fmt.Sprintf("%s: flushed, killed and started again, disk full", target), func() { kill = w.daemon("--state", state) })
		kill()
		w.sh("rm -f " + state + "/full")
	}
}
