package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// The tests of this file check that a policy stays in force during events on a host: devices disappear and return, other tools flush netfilter, the
// daemon is killed. All the time, a sender sends packets that the policy drops. A socket of this host shows whether they arrive.

// filteredAgain is the longest time until the policy is in force again, on a busy machine. With idle CPUs it takes a tenth of a second after most
// events. It takes a second after events that the kernel does not report.
const filteredAgain = 30 * time.Second

// quiet is the time without received packets after which a test regards the policy as in force.
const quiet = 250 * time.Millisecond

// lifePolicy drops the sender's packets. The packets arrive on fw0. fx0 is a second device.
const lifePolicy = `devices: [fw0, fx0]
default: pass
sets: {listed: [198.51.100.0/24], bans: {dynamic: true, max: 300}}
rules:
  - {name: flood, proto: udp, port: 9, from: $listed, then: drop}
  - {name: banned, from: $bans, then: drop}
  - {name: late, state: invalid, then: drop}
`

// watch has a sender, and a socket that must not receive its packets.
type watch struct {
	*testing.T
	policy   string
	received atomic.Uint64
	last     atomic.Int64 // when the last packet was received, in nanoseconds since began
	sent     atomic.Uint64
	began    time.Time
}

// newWatch starts the sender and the socket. It does not apply the policy.
func newWatch(t *testing.T) *watch {
	t.Helper()
	w := &watch{T: t, policy: filepath.Join(t.TempDir(), "policy.yaml"), began: time.Now()}
	if err := os.WriteFile(w.policy, []byte(lifePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"all", "default"} {
		os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte("0"), 0)
	}
	testutil.Veth(t, "fx0", "fx1")
	socket, err := net.ListenPacket("udp4", "0.0.0.0:9")
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	end := make(chan struct{})
	both.Go(func() {
		buffer := make([]byte, 2048)
		for {
			if _, _, err := socket.ReadFrom(buffer); err != nil {
				return
			}
			w.last.Store(int64(time.Since(w.began)))
			w.received.Add(1)
		}
	})
	both.Go(func() { w.send(end) })
	t.Cleanup(func() {
		close(end)
		socket.Close()
		both.Wait()
	})
	return w
}

// send sends about a thousand packets a second at fw1, as long as that device exists.
func (w *watch) send(end <-chan struct{}) {
	spec, err := packet.Parse("udp 198.51.100.1:5 > 192.0.2.1:9")
	if err != nil {
		w.Error(err)
		return
	}
	frame := spec.Frame()
	copy(frame, "\xff\xff\xff\xff\xff\xff") // the device has another address each time that it returns
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		w.Error(err)
		return
	}
	defer unix.Close(socket)
	to := unix.SockaddrLinklayer{}
	for {
		select {
		case <-end:
			return
		case <-time.After(time.Millisecond):
		}
		if to.Ifindex == 0 {
			if dev, err := net.InterfaceByName("fw1"); err == nil {
				to.Ifindex = dev.Index
			}
			continue
		}
		switch err := unix.Sendto(socket, frame, 0, &to); err {
		case nil:
			w.sent.Add(1)
		case unix.ENXIO, unix.ENODEV: // the device has been removed, and perhaps replaced
			to.Ifindex = 0
		}
	}
}

// arrives waits until the sender's packets arrive, as they must without a policy. If they never arrived, a later test that none arrives would prove
// nothing.
func (w *watch) arrives() {
	w.Helper()
	before := w.received.Load()
	w.until("the packets do not come in without a policy", func() bool { return w.received.Load() > before })
}

// until waits until a condition holds. On failure it prints the text otherwise.
func (w *watch) until(otherwise string, is func() bool) {
	w.Helper()
	if !testutil.Eventually(filteredAgain, is) {
		out, err := floodwall("status")
		w.Fatalf("%s, after %v; status: %v\n%s", otherwise, filteredAgain, err, out)
	}
}

// event changes the host and waits until the policy is in force again. It returns the number of packets that arrived in this time. The sender must
// have sent packets.
func (w *watch) event(name string, do func()) (passed uint64) {
	w.Helper()
	before, begin := w.received.Load(), time.Since(w.began)
	do()
	w.filtered() // first, as it starts no process
	w.until(name+": status does not say that all is well", func() bool {
		_, err := floodwall("status")
		return err == nil
	})
	w.filtered()
	passed = w.received.Load() - before
	took := time.Duration(0)
	if passed > 0 {
		took = time.Duration(w.last.Load()) - begin
	}
	w.Logf("%-46s %4d packets passed, the last after %v", name, passed, took.Round(time.Millisecond))
	return passed
}

// filtered waits until packets are sent but none arrives.
func (w *watch) filtered() {
	w.Helper()
	w.until("packets come in that the policy drops", func() bool {
		received, sent := w.received.Load(), w.sent.Load()
		time.Sleep(quiet)
		return w.received.Load() == received && w.sent.Load() > sent+5
	})
}

// sh runs a shell script. It fails the test if a line fails.
func (w *watch) sh(lines string) {
	w.Helper()
	if out, err := exec.Command("sh", "-e", "-c", lines).CombinedOutput(); err != nil {
		w.Fatalf("%s: %v\n%s", lines, err, out)
	}
}

// open checks that status and doctor fail, and that their output contains a text about the device that is open.
func (w *watch) open(want string) {
	w.Helper()
	for _, command := range []string{"status", "doctor"} {
		out, err := floodwall(command)
		if code := exitCode(err); code != 1 || !strings.Contains(strings.Join(strings.Fields(out), " "), want) { // doctor breaks lines
			w.Errorf("%s ends with %d, and says\n%s\nwant 1, and %q", command, code, out, want)
		}
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// daemon starts the daemon and waits until it observes the policy. The returned function kills the daemon.
func (w *watch) daemon(args ...string) (kill func()) {
	w.Helper()
	cmd := exec.Command("floodwall", append([]string{"daemon"}, args...)...)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
	w.Cleanup(kill)
	return kill
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
		{"ipset destroy, and a set of another type", "set=$(ipset list -n | grep listed-4)\n" + // again when the daemon was between
			"until for t in raw filter; do iptables -t $t -F; ip6tables -t $t -F; done; ipset destroy $set 2>/dev/null && ipset create $set hash:ip family inet 2>/dev/null; do :; done"},
	},
}

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
