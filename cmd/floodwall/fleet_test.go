// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// nodeHost is a node in a network namespace of its own. It has a real daemon, and a real socket to which a client sends.
type nodeHost struct {
	t       *testing.T
	name    string
	ns      *testutil.Elsewhere
	flags   []string
	daemon  *exec.Cmd
	address netip.AddrPort
	socket  *net.UDPConn
	client  *net.UDPConn // elsewhere, 198.51.100.7
	sent    int
}

const fleetPolicy = `devices: [fw0]
default: pass
checks: off
daemon: {sample: 1/10}
sets:
  bans: {dynamic: true, max: 1000, timeout: 1h}
rules:
  - {name: banned, from: $bans, then: drop}
`

// newNodeHost makes the node with the given number. The node's device is connected to the bridge of the hubs.
func newNodeHost(t *testing.T, dir, name string, number int) *nodeHost {
	t.Helper()
	return newNodeHostOf(t, dir, name, number, fleetPolicy)
}

// newNodeHostOf makes a node, as newNodeHost does, with another policy and flags of apply.
func newNodeHostOf(t *testing.T, dir, name string, number int, text string, flags ...string) *nodeHost {
	t.Helper()
	n := &nodeHost{t: t, name: name, ns: testutil.NewElsewhere(t), address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(number)}), 9000)}
	n.flags = []string{"--state", filepath.Join(dir, name), "--bpffs", "/sys/fs/bpf/" + name}
	sh(t, fmt.Sprintf("ip link add port%d type veth peer name far%d && ip link set port%d master hubs up", number, number, number))
	n.ns.Take(t, fmt.Sprint("far", number))
	n.in(func() error {
		out, err := exec.Command("sh", "-c", fmt.Sprintf("ip link set lo up; ip link set far%d name fw0; ip addr add %s/24 dev fw0; ip link set fw0 up; ip route add default via 10.9.0.1",
			number, n.address.Addr())).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		n.socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(n.address))
		return err
	})
	client, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(198, 51, 100, 7)}, net.UDPAddrFromAddrPort(n.address))
	if err != nil {
		t.Fatal(err)
	}
	n.client = client
	t.Cleanup(func() { n.socket.Close(); client.Close() })
	policy := filepath.Join(dir, "policy.yaml")
	writeFile(t, policy, text)
	n.run(append([]string{"apply", policy}, flags...)...)
	t.Cleanup(func() { n.run("unload") })
	return n
}

// in runs a function in the node's network namespace.
func (n *nodeHost) in(fn func() error) {
	n.t.Helper()
	var err error
	n.ns.Do(func() { err = fn() })
	if err != nil {
		n.t.Fatal(err)
	}
}

// run runs a command at the node.
func (n *nodeHost) run(args ...string) (out string) {
	n.t.Helper()
	n.in(func() error {
		text, err := exec.Command("floodwall", append(args, n.flags...)...).CombinedOutput()
		if out = string(text); err != nil {
			return fmt.Errorf("%s: floodwall %s: %w\n%s", n.name, strings.Join(args, " "), err, out)
		}
		return nil
	})
	return out
}

// try runs a command at the node that may fail.
func (n *nodeHost) try(args ...string) (out string, err error) {
	n.ns.Do(func() {
		var text []byte
		text, err = exec.Command("floodwall", append(args, n.flags...)...).CombinedOutput()
		out = string(text)
	})
	return out, err
}

// start starts the node's daemon.
func (n *nodeHost) start() *exec.Cmd {
	n.t.Helper()
	daemon := exec.Command("floodwall", append([]string{"daemon"}, n.flags...)...)
	n.in(daemon.Start)
	n.daemon = daemon
	n.t.Cleanup(n.kill)
	waitFor(n.t, n.name+" is connected", func() bool { return strings.Contains(n.run("status"), "fleet: node "+n.name+", hub ") })
	return daemon
}

// kill kills the node's daemon.
func (n *nodeHost) kill() {
	n.daemon.Process.Kill()
	n.daemon.Wait()
}

// passes reports whether a packet of the client reaches the node's socket.
func (n *nodeHost) passes() bool {
	n.t.Helper()
	n.sent++
	text := fmt.Sprint("packet ", n.sent)
	if _, err := n.client.Write([]byte(text)); err != nil {
		n.t.Fatal(err)
	}
	for {
		got, _, ok := testutil.Receive(n.t, n.socket, 300*time.Millisecond)
		if !ok || string(got) == text {
			return ok
		}
	}
}

// startHub starts a hub without any capability.
func startHub(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	hub := exec.Command("setpriv", "--ambient-caps", "-all", "--inh-caps", "-all", "floodwall", "hub", "run", "--dir", dir)
	log, err := os.Create(dir + ".log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	hub.Stdout, hub.Stderr = log, log
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hub.Process.Kill(); hub.Wait() })
	return hub
}

// TestFleet runs three hubs and two nodes, all real processes. A client that node a bans must not reach the socket at node b. It must reach the
// socket again after the unban, and after the ban's end. The test kills a random hub in the meantime. At the end node a is revoked.
func TestFleet(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	sh(t, "ip link set lo up; ip link add name hubs type bridge; for i in 1 2 3; do ip addr add 10.9.0.$i/24 dev hubs; done; ip addr add 198.51.100.7/32 dev lo; ip link set hubs up")
	t.Cleanup(func() {
		if hubs, err := netlink.LinkByName("hubs"); err == nil {
			netlink.LinkDel(hubs)
		}
	})
	dir := t.TempDir()
	fleet := filepath.Join(dir, "fleet")
	mustFloodwall(t, "hub", "init", "--dir", fleet, "--cluster", "a=10.9.0.1,b=10.9.0.2,c=10.9.0.3")
	hubs := []*exec.Cmd{}
	for _, name := range []string{"a", "b", "c"} {
		hubs = append(hubs, startHub(t, filepath.Join(fleet, name)))
	}
	for _, name := range []string{"a", "b", "c"} {
		waitFor(t, "hub "+name, func() bool {
			text, _ := os.ReadFile(filepath.Join(fleet, name) + ".log")
			return strings.Contains(string(text), "serves nodes")
		})
	}
	a, b := newNodeHost(t, dir, "web-a", 11), newNodeHost(t, dir, "web-b", 12)
	for _, n := range []*nodeHost{a, b} {
		command := strings.Fields(mustFloodwall(t, "hub", "invite", n.name, "--dir", filepath.Join(fleet, "c")))
		n.run(command[1:]...)
		n.start()
	}
	if !testutil.Eventually(filteredAgain, b.passes) {
		t.Fatal("the client does not reach node b at first")
	}
	a.run("block", "198.51.100.7", "--for", "1h", "--why", "scans")
	waitFor(t, "node b drops what node a bans", func() bool { return !b.passes() })
	if out := b.run("blocked"); !strings.Contains(out, "fleet web-a") || !strings.Contains(out, "scans") {
		t.Errorf("blocked at node b does not name node a and its reason:\n%s", out)
	}
	b.testUnblockStays(a)
	a.run("unblock", "198.51.100.7")

	killed := testutil.Random(t).IntN(3)
	t.Logf("hub %d is killed", killed)
	hubs[killed].Process.Kill()
	hubs[killed].Wait()
	a.run("block", "198.51.100.7", "--for", "1h")
	waitFor(t, "node b drops it with two hubs", func() bool { return !b.passes() })
	a.run("unblock", "198.51.100.7")
	waitFor(t, "node b passes it after the second unban", b.passes)
	lasts := 5 * time.Second
	for drops := func() bool { return !b.passes() }; ; lasts *= 2 { // on a busy machine a short ban ends before node b has it
		a.run("block", "198.51.100.7", "--for", lasts.String())
		if testutil.Eventually(lasts, drops) {
			break
		}
		if lasts > time.Minute {
			t.Fatalf("node b does not drop it during a ban of %v", lasts)
		}
	}
	began := time.Now()
	waitFor(t, "node b passes it after its end", b.passes)
	if took := time.Since(began); took > lasts+time.Minute {
		t.Errorf("a ban of %v lasts %v at node b", lasts, took)
	}
	b.testView(filepath.Join(fleet, "c"))
	a.testRevoke(fleet, killed, b)
}

// testUnblockStays lifts another node's ban at this node, and kills the daemon. The next daemon receives all records from the hub, but must not ban
// the client again.
func (n *nodeHost) testUnblockStays(other *nodeHost) {
	n.t.Helper()
	n.run("unblock", "198.51.100.7")
	waitFor(n.t, n.name+" has noted the lift", func() bool {
		text, _ := os.ReadFile(filepath.Join(n.flags[1], "fleet.said"))
		return strings.Contains(string(text), "198.51.100.7/32")
	})
	n.kill()
	other.run("block", "203.0.113.1")
	n.start()
	waitFor(n.t, n.name+" has what was banned meanwhile", func() bool { return strings.Contains(n.run("blocked"), "203.0.113.1") })
	if out := n.run("blocked"); strings.Contains(out, "198.51.100.7") || !testutil.Eventually(filteredAgain, n.passes) {
		n.t.Errorf("%s drops again what was unblocked there:\n%s", n.name, out)
	}
}

// TestFleetTargets runs nodes on XDP, nftables and iptables. After a ban by one node, all nodes must drop the client's packets. The daemons are
// killed while they have three bans of another node. The first ban ends while no daemon runs, the second is lifted in that time, and the third ends
// later. All must end in time.
func TestFleetTargets(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	sh(t, "ip link set lo up; ip link add name hubs type bridge; ip addr add 10.9.0.1/24 dev hubs; ip addr add 198.51.100.7/32 dev lo; ip link set hubs up")
	t.Cleanup(func() { sh(t, "ip link del hubs") })
	dir := t.TempDir()
	hub := filepath.Join(dir, "hub")
	mustFloodwall(t, "hub", "init", "--dir", hub, "--address", "10.9.0.1")
	startHub(t, hub)
	waitFor(t, "the hub", func() bool {
		text, _ := os.ReadFile(hub + ".log")
		return strings.Contains(string(text), "serves nodes")
	})
	var all []*nodeHost
	var daemons []*exec.Cmd
	const router = "upstream: {as: 64500, router_id: 10.9.0.1, announce: [10.9.0.0/24], peers: [{address: 198.18.0.9, as: 64501}]}\n"
	for i, target := range []string{"xdp", "nftables", "iptables"} {
		n := newNodeHostOf(t, dir, "on-"+target, 11+i, strings.Replace(fleetPolicy, "daemon: {sample: 1/10}\n", router, 1), "--target", target)
		out := n.run(strings.Fields(mustFloodwall(t, "hub", "invite", n.name, "--dir", hub))[1:]...)
		for _, command := range []string{"floodwall daemon", "apply --boot"} {
			if command = fmt.Sprintf("`%s --bpffs %s --state %s`", command, n.flags[3], n.flags[1]); !strings.Contains(out, command) {
				t.Errorf("join does not name the command %s:\n%s", command, out)
			}
		}
		all, daemons = append(all, n), append(daemons, n.start())
	}
	say := func(args ...string) { mustFloodwall(t, append(args, "--dir", hub)...) }
	everywhere := func(what string, passes bool) {
		t.Helper()
		for _, n := range all {
			waitFor(t, n.name+": "+what, func() bool { return n.passes() == passes })
		}
	}
	everywhere("passes at first", true)
	all[0].run("block", "198.51.100.7", "--for", "1h", "--why", "scans")
	everywhere("drops what "+all[0].name+" bans", false)
	all[0].run("unblock", "198.51.100.7")
	everywhere("passes after the unban", true)

	const brief = 8 * time.Second
	began := time.Now()
	say("hub", "ban", "198.51.100.7", "--for", brief.String())
	for address, what := range map[string]string{"10.9.0.1": "hub hub", "10.9.0.12": "node on-nftables"} {
		waitFor(t, all[0].name+": knows "+what, func() bool {
			text, _ := os.ReadFile("/run/floodwall/fleet-" + all[0].name + ".addresses")
			return slices.Contains(strings.Fields(string(text)), address)
		})
		if out, err := floodwall("hub", "ban", address, "--for", "1h", "--dir", hub); err == nil || !strings.Contains(out, "has "+what) {
			t.Errorf("a ban of %s: %v\n%s", what, err, out)
		}
		if out, err := all[0].try("block", address); err == nil || !strings.Contains(out, "a hub or a node of the fleet: not blocked") {
			t.Errorf("%s is blocked by hand: %v\n%s", what, err, out)
		}
	}
	say("hub", "ban", "198.18.0.0/20", "--for", "1h") // a router upstream
	say("hub", "ban", "203.0.113.0/24", "--for", "1h")
	say("hub", "ban", "192.0.2.0/24", "--for", "1h")
	held := func(n *nodeHost, prefix string) bool { return strings.Contains(n.run("blocked"), prefix) }
	for _, n := range all {
		waitFor(t, n.name+": holds the bans", func() bool { return held(n, "203.0.113.0/24") && held(n, "192.0.2.0/24") })
	}
	for _, n := range all {
		if out := n.run("blocked"); strings.Contains(out, "198.18.0.0/20") || strings.Contains(out, "10.9.0.") {
			t.Errorf("%s drops a router upstream, the hub or a node:\n%s", n.name, out)
		}
	}
	for _, d := range daemons {
		d.Process.Kill()
		d.Wait()
	}
	say("hub", "unban", "203.0.113.0/24")
	everywhere("passes after the end, without a daemon", true)
	if took := time.Since(began); took < brief-2*time.Second {
		t.Errorf("a ban of %v ended after %v", brief, took)
	}
	for _, n := range all {
		n.start()
		waitFor(t, n.name+": lifts what was lifted meanwhile", func() bool { return !held(n, "203.0.113.0/24") })
		if !held(n, "192.0.2.0/24") {
			t.Errorf("%s has lost a ban that holds", n.name)
		}
		if held(n, "198.51.100.7") {
			t.Errorf("%s has a ban that has ended", n.name)
		}
	}
	say("hub", "unban", "192.0.2.0/24")
	for _, n := range all {
		waitFor(t, n.name+": lifts the last ban", func() bool { return !held(n, "192.0.2.0/24") })
	}
}

// testView sends packets of the client until the view of the fleet lists the client. It checks the view at the hubs and at the node.
func (n *nodeHost) testView(hub string) {
	n.t.Helper()
	var v wire.View
	at := -1 // of the client: nodes name others too, as the hubs
	waitFor(n.t, "the view of the fleet names the client", func() bool {
		for range 200 {
			if _, err := n.client.Write([]byte("seen")); err != nil {
				n.t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if err := json.Unmarshal([]byte(mustFloodwall(n.t, "hub", "view", "--json", "--dir", hub)), &v); err != nil {
			n.t.Fatal(err)
		}
		at = slices.IndexFunc(v.Talkers, func(k wire.SharedTalker) bool { return k.Prefix.String() == "198.51.100.7/32" })
		return v.Nodes == 2 && at >= 0
	})
	if k := v.Talkers[at]; k.Packets == 0 || k.Packets < k.Error || v.Passed.Packets == 0 || v.Attacked != 0 {
		n.t.Errorf("the view: %+v", v)
	}
	if out := mustFloodwall(n.t, "hub", "view", "--dir", hub); !strings.Contains(out, "2 nodes, 0 under attack") || !strings.Contains(out, "web-a") ||
		!strings.Contains(out, "198.51.100.7/32") {
		n.t.Errorf("hub view does not name the nodes and the client:\n%s", out)
	}
	var status api.FleetStatus
	waitFor(n.t, "the API of a node has the view", func() bool {
		time.Sleep(100 * time.Millisecond)
		a, err := get(filepath.Join(api.Dir("/sys/fs/bpf/"+n.name, datapath.DefaultDir), "read.sock"), "/v1/fleet")
		return err == nil && json.Unmarshal([]byte(a.body), &status) == nil && status.View != nil && status.View.Nodes == 2
	})
}

// TestBenchFleet measures a small fleet. All phases must end. No ban may be lost or outlive its end. The times are not checked, because they depend
// on the machine.
func TestBenchFleet(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	var rows []struct {
		What  string
		Value float64
	}
	out := mustFloodwall(t, "bench", "fleet", "--json", "--nodes", "6", "--few", "4", "--bans", "500", "--rate", "100", "--for", "500ms", "--probes", "5", "--partition", "1s")
	if err := json.Unmarshal([]byte(out[max(strings.Index(out, "[{"), 0):]), &rows); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if len(rows) != 12 {
		t.Errorf("%d rows, want 12:\n%s", len(rows), out)
	}
	for _, r := range rows {
		if strings.HasPrefix(r.What, "bans lost") && r.Value > 0 || strings.HasPrefix(r.What, "bans that outlive") && r.Value > 0 {
			t.Errorf("%s: %v", r.What, r.Value)
		}
	}
}
