// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// upstreams are routers one hop away from this host, all in one network namespace. BIRD is at 192.0.2.254, GoBGP's daemon at 192.0.2.253, and FRR at
// 192.0.2.252. From 192.0.2.230 on, each update of hostileUpdates has a hostile router. Attackers and clients have the address 192.0.2.100.
type upstreams struct {
	*testing.T
	ns   *testutil.Elsewhere
	dir  string
	bird *exec.Cmd
	host *speakerProcess
	said *lines // by the daemon

	hostile   []hostileUpdate
	listeners []*net.TCPListener // of the routers that send these
}

const (
	birdPeer = `
router id 192.0.2.254;
protocol device {}
flow4 table flowtab4; flow6 table flowtab6;
protocol static flows4 { flow4 { table flowtab4; };
  route flow4 { dst 192.0.2.1/32; proto = 17; sport = 19; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };
  route flow4 { dst 203.0.113.0/24; proto = 17; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };
  route flow4 { dst 192.0.2.0/24; dport = 7; } { bgp_ext_community.add((generic, 0x80080000, 0x1)); };
}
protocol static flows6 { flow6 { table flowtab6; };
  route flow6 { dst 2001:db8::1/128; next header = 17; sport = 19; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };
}
protocol bgp host {
  local 192.0.2.254 as 64501; neighbor 192.0.2.1 as 64500; strict bind yes; passive on;
  hold time 9; graceful restart on; graceful restart time 200;
  flow4 { table flowtab4; import all; export where source = RTS_STATIC; };
  flow6 { table flowtab6; import all; export where source = RTS_STATIC; };
}
`
	gobgpPeer = `
[global.config]
as = 64501
router-id = "192.0.2.253"
port = 179
local-address-list = ["192.0.2.253"]
[[neighbors]]
[neighbors.config]
neighbor-address = "192.0.2.1"
peer-as = 64500
[neighbors.transport.config]
passive-mode = true
local-address = "192.0.2.253"
[neighbors.timers.config]
hold-time = 9
keepalive-interval = 3
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv4-flowspec"
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv6-flowspec"
`
	frrPeer = `
router bgp 64501
 bgp router-id 192.0.2.252
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor 192.0.2.1 remote-as 64500
 neighbor 192.0.2.1 passive
 neighbor 192.0.2.1 timers 3 9
 address-family ipv4 flowspec
  neighbor 192.0.2.1 activate
 exit-address-family
 address-family ipv6 flowspec
  neighbor 192.0.2.1 activate
 exit-address-family
`
	flowspecPolicy = `devices: [fw0]
checks: off
upstream:
  as: 64500
  router_id: 192.0.2.1
  announce: [192.0.2.0/24, "2001:db8::/48"]
  live: true
  hold: 1s
  receive: {max: 8}
  peers:
    - {address: 192.0.2.254, as: 64501, hold_time: 9s, graceful_restart: 3s, families: [ipv4-flowspec, ipv6-flowspec]}
    - {address: 192.0.2.253, as: 64501, hold_time: 9s, graceful_restart: 3s, families: [ipv4-flowspec, ipv6-flowspec]}
    - {address: 192.0.2.252, as: 64501, hold_time: 9s, graceful_restart: 3s, families: [ipv4-flowspec, ipv6-flowspec]}
`
	hostilePeer = "    - {address: %s, as: 64501, hold_time: 9s, graceful_restart: 3s, families: [ipv4-flowspec, ipv6-flowspec]}\n"
)

// TestFlowSpecInterop checks that FlowSpec routes of real routers make this host drop real packets. It checks that the routers get this host's
// announcements. Then the routers withdraw routes and end sessions, and hostile routers send messages.
func TestFlowSpecInterop(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	u := newUpstreams(t)
	file := filepath.Join(u.dir, "policy.yaml")
	policy := flowspecPolicy
	for _, l := range u.listeners {
		policy += fmt.Sprintf(hostilePeer, l.Addr().(*net.TCPAddr).IP)
	}
	writeFile(t, file, policy)
	mustFloodwall(t, "apply", file)
	t.Cleanup(func() { floodwall("unload") })
	u.host.start()
	t.Cleanup(u.host.kill)
	u.said = startDaemon(t, "--bgp", u.host.run).said
	u.table()
	u.packets()
	u.withdrawn()
	u.lost()
	u.attacked()
}

func newUpstreams(t *testing.T) *upstreams {
	u := &upstreams{T: t, ns: testutil.NewElsewhere(t), dir: t.TempDir(), hostile: hostileUpdates()}
	u.host = &speakerProcess{t: t, run: filepath.Join(u.dir, "run"), state: filepath.Join(u.dir, "state")}
	for _, d := range []string{u.host.run, u.host.state} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sh(t, "ip link set lo up; ip link add fw0 type veth peer name up0; ip addr add 192.0.2.1/24 dev fw0; ip addr add 2001:db8::1/64 dev fw0 nodad; ip link set fw0 up")
	u.ns.Take(t, "up0")
	for _, line := range []string{"link set lo up", "link set up0 up", "addr add 2001:db8::100/64 dev up0 nodad"} {
		u.must("ip", strings.Fields(line)...)
	}
	for _, host := range []int{254, 253, 252, 100} {
		u.must("ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", host), "dev", "up0")
	}
	for i := range u.hostile {
		address := fmt.Sprintf("192.0.2.%d", 230+i)
		u.must("ip", "addr", "add", address+"/24", "dev", "up0")
		u.listeners = append(u.listeners, u.listen(address))
	}
	writeFile(t, filepath.Join(u.dir, "bird.conf"), birdPeer)
	writeFile(t, filepath.Join(u.dir, "gobgp.conf"), gobgpPeer)
	writeFile(t, filepath.Join(u.dir, "frr.conf"), frrPeer)
	u.startBird()
	u.start("gobgpd", "-f", filepath.Join(u.dir, "gobgp.conf"), "--api-hosts", "127.0.0.1:50051")
	u.start("/usr/lib/frr/bgpd", "-S", "-Z", "-n", "-f", filepath.Join(u.dir, "frr.conf"), "-l", "192.0.2.252", "-P", "0",
		"--vty_socket", u.dir, "-i", filepath.Join(u.dir, "frr.pid"))
	return u
}

// start starts a program in the network namespace of the routers. The program ends with the test.
func (u *upstreams) start(name string, args ...string) *exec.Cmd {
	u.Helper()
	cmd := exec.Command(name, args...)
	log, err := os.Create(filepath.Join(u.dir, filepath.Base(name)+".log"))
	if err != nil {
		u.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	u.ns.Do(func() { err = cmd.Start() })
	if err != nil {
		u.Fatalf("%s: %v", name, err)
	}
	u.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func (u *upstreams) startBird() {
	u.bird = u.start("bird", "-f", "-c", filepath.Join(u.dir, "bird.conf"), "-s", filepath.Join(u.dir, "ctl"), "-P", filepath.Join(u.dir, "pid"))
}

// run runs a program in the network namespace of the routers, and returns its output.
func (u *upstreams) run(name string, args ...string) (string, error) {
	var out []byte
	var err error
	cmd := exec.Command(name, args...)
	u.ns.Do(func() { out, err = cmd.CombinedOutput() })
	return string(out), err
}

func (u *upstreams) must(name string, args ...string) string {
	u.Helper()
	out, err := u.run(name, args...)
	if err != nil {
		u.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// rules returns the reasons of the rules for received routes, by the name of the rule.
func (u *upstreams) rules() map[string]string {
	u.Helper()
	var s struct {
		Rules []struct {
			Name      string
			Temporary *struct{ Owner, Why string }
		}
	}
	if err := json.Unmarshal([]byte(mustFloodwall(u.T, "status", "--json")), &s); err != nil {
		u.Fatal(err)
	}
	found := map[string]string{}
	for _, r := range s.Rules {
		if r.Temporary != nil && r.Temporary.Owner == "flowspec" {
			found[r.Name] = r.Temporary.Why
		}
	}
	return found
}

// obeys reports whether a rule for a received route is in force and its reason contains a text.
func (u *upstreams) obeys(text string) bool {
	for _, why := range u.rules() {
		if strings.Contains(why, text) {
			return true
		}
	}
	return false
}

// until waits for a condition. On failure it prints the output of the daemon and the process.
func (u *upstreams) until(what string, is func() bool) {
	u.Helper()
	if testutil.Eventually(time.Minute, is) {
		return
	}
	status, _ := u.host.floodwall("status")
	logs := ""
	for _, name := range []string{"bird", "gobgpd", "bgpd"} {
		text, _ := os.ReadFile(filepath.Join(u.dir, name+".log"))
		logs += fmt.Sprintf("%s: %s\n", name, text)
	}
	u.Fatalf("waiting for %s; rules %v\nsessions:\n%s\ndaemon:\n%s\nbgp run:\n%s\n%s", what, u.rules(), status, u.said, u.host.log(), logs)
}

// peer is a row of the table in docs/design/flowspec.md: a router.
type peer struct {
	name, version string
	sends         [2]string        // by family, the reason of the rule for its route; "": it cannot send routes
	holds         func(int) string // returns the FlowSpec routes that it received, by family
}

// table checks each router in each direction and for each address family. It compares the results with the table of the document.
func (u *upstreams) table() {
	u.Helper()
	gobgp := func(args ...string) []string { return append([]string{"-u", "127.0.0.1", "-p", "50051"}, args...) }
	families := []string{"ipv4-flowspec", "ipv6-flowspec"}
	u.until("GoBGP's daemon", func() bool { _, err := u.run("gobgp", gobgp("global")...); return err == nil })
	u.must("gobgp", gobgp("global", "rib", "add", "-a", "ipv4-flowspec", "match", "destination", "192.0.2.77/32", "protocol", "udp", "source-port", "==123", "then", "discard")...)
	u.must("gobgp", gobgp("global", "rib", "add", "-a", "ipv6-flowspec", "match", "destination", "2001:db8::77/128", "protocol", "udp", "source-port", "==123", "then", "discard")...)
	peers := []peer{
		{name: "BIRD", version: versionIn(u.must("bird", "--version")),
			sends: [2]string{"192.0.2.254 announces: destination 192.0.2.1/32, protocol =17, source port =19", "192.0.2.254 announces: destination 2001:db8::1/128, protocol =17, source port =19"},
			holds: func(f int) string {
				out, _ := u.run("birdc", "-s", filepath.Join(u.dir, "ctl"), fmt.Sprintf("show route table flowtab%d protocol host", []int{4, 6}[f]))
				return out
			}},
		{name: "FRR", version: versionIn(u.must("/usr/lib/frr/bgpd", "--version")),
			holds: func(f int) string {
				out, _ := u.run("setpriv", "--reuid", "0", "--regid", "0", "--clear-groups", "vtysh", "-d", "bgpd", "--vty_socket", u.dir, "-c", fmt.Sprintf("show bgp ipv%d flowspec", []int{4, 6}[f]))
				return out
			}},
		{name: "GoBGP", version: versionIn(u.must("gobgpd", "--version")),
			sends: [2]string{"192.0.2.253 announces: destination 192.0.2.77/32, protocol =17, source port =123", "192.0.2.253 announces: destination 2001:db8::77/128, protocol =17, source port =123"},
			holds: func(f int) string { out, _ := u.run("gobgp", gobgp("global", "rib", "-a", families[f])...); return out }},
	}
	u.host.says(0, "", "announce", "192.0.2.9", "--proto", "udp", "--sport", "53", "--for", "10m")
	u.host.says(0, "", "announce", "2001:db8::9", "--proto", "udp", "--sport", "53", "--for", "10m")
	lines := []string{"| router | version | its routes are obeyed here, IPv4 | IPv6 | it holds ours, IPv4 | IPv6 |", "|---|---|---|---|---|---|"}
	for _, p := range peers {
		cells := []string{p.name, p.version}
		for f := range 2 {
			if p.sends[f] == "" {
				cells = append(cells, "sends none")
				continue
			}
			u.until(p.name+"'s route", func() bool { return u.obeys(p.sends[f]) })
			cells = append(cells, "yes")
		}
		for f, address := range []string{"192.0.2.9", "2001:db8::9"} {
			u.until(p.name+" with our route: "+p.holds(f), func() bool { return strings.Contains(p.holds(f), address) })
			cells = append(cells, "yes")
		}
		lines = append(lines, "| "+strings.Join(cells, " | ")+" |")
	}
	table := strings.Join(lines, "\n") + "\n"
	u.Logf("\n%s", table)
	document, err := os.ReadFile("../../docs/design/flowspec.md")
	if err != nil || !strings.Contains(string(document), table) {
		u.Errorf("docs/design/flowspec.md has another table: %v\n%s", err, table)
	}
	if u.obeys("203.0.113.0") || u.obeys("192.0.2.0/24") {
		u.Errorf("routes for foreign prefixes, or with redirects, are obeyed: %v", u.rules())
	}
	u.counted()
}

// versionIn returns the first word that starts with a digit, or text if there is none.
func versionIn(text string) string {
	for _, word := range strings.Fields(text) {
		if word[0] >= '0' && word[0] <= '9' {
			return strings.TrimRight(word, ".,")
		}
	}
	return text
}

// packets sends packets that match BIRD's FlowSpec route, and packets of clients, over real sockets.
func (u *upstreams) packets() {
	u.Helper()
	for _, family := range []struct{ server, source string }{{"192.0.2.1", "192.0.2.100"}, {"2001:db8::1", "2001:db8::100"}} {
		flood, clients := u.exchange(family.server, family.source, 19), u.exchange(family.server, family.source, 5000)
		if flood != 0 || clients != packetsSent {
			u.Errorf("%s: of %d packets each, %d of the flood and %d of clients came through", family.server, packetsSent, flood, clients)
		}
	}
	if out := mustFloodwall(u.T, "explain", "--live", "udp 198.51.100.7:19 > 192.0.2.1:53"); !strings.Contains(out, "flowspec-") {
		u.Errorf("explain: %s", out)
	}
	if out := mustFloodwall(u.T, "explain", "--live", "udp 192.0.2.254:19 > 192.0.2.1:53"); strings.Contains(out, "flowspec-") {
		u.Errorf("a packet of a router is dropped: %s", out)
	}
}

// packetsSent is the number of packets that exchange sends.
const packetsSent = 200

// exchange sends packets from a port and then a last one from another. It returns how many a server on this host received before the last one.
func (u *upstreams) exchange(server, source string, port int) int {
	u.Helper()
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(server)})
	if err != nil {
		u.Fatal(err)
	}
	defer l.Close()
	var got atomic.Int64
	ended := make(chan bool)
	go func() {
		defer close(ended)
		b := make([]byte, 100)
		for {
			n, _, err := l.ReadFrom(b)
			if err != nil || string(b[:n]) == "last" {
				return
			}
			got.Add(1)
		}
	}()
	to := l.LocalAddr().(*net.UDPAddr)
	var failed error
	send := func(port int, text string, n int) {
		u.ns.Do(func() {
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(source), Port: port}, to)
			if err != nil {
				failed = err
				return
			}
			defer c.Close()
			if failed = testutil.TellFull(c); failed != nil {
				return
			}
			restore, err := testutil.StayOnOneCPU() // the last packet comes last
			if err != nil {
				failed = err
				return
			}
			defer restore()
			for range n {
				_, err := c.Write([]byte(text))
				for ; errors.Is(err, unix.ENOBUFS); _, err = c.Write([]byte(text)) {
					time.Sleep(time.Millisecond)
				}
				if err != nil {
					failed = err
				}
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	send(port, "packet", packetsSent)
	send(6000, "last", 1)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		u.Error("the last packet did not come")
	}
	if failed != nil {
		u.Error(failed)
	}
	return int(got.Load())
}

// counted checks the metrics of received routes. Two obeyed routes may share a rule. Each refused route has a reason of its own.
func (u *upstreams) counted() {
	u.Helper()
	figures := map[string]float64{}
	u.until("the metrics of routes", func() bool {
		a, err := get(readSocket, "/v1/metrics")
		if err != nil {
			return false
		}
		for line := range strings.Lines(a.body) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, err := strconv.ParseFloat(value, 64); err == nil {
				figures[name] = n
			}
		}
		_, all := figures["floodwall_flowspec_rules"]
		return all
	})
	route := func(state string) float64 { return figures[`floodwall_flowspec_routes{state="`+state+`"}`] }
	if route("obeyed") == 0 || figures["floodwall_flowspec_rules"] == 0 || route("foreign") == 0 || route("unsupported") == 0 || figures["floodwall_flowspec_changes_total"] == 0 {
		u.Errorf("the metrics of routes: %v obeyed, %v foreign, %v unsupported, %v rules, %v changes", route("obeyed"), route("foreign"), route("unsupported"),
			figures["floodwall_flowspec_rules"], figures["floodwall_flowspec_changes_total"])
	}
}

// withdrawn makes BIRD withdraw its routes and announce them again.
func (u *upstreams) withdrawn() {
	u.Helper()
	ctl := filepath.Join(u.dir, "ctl")
	u.must("birdc", "-s", ctl, "disable flows4")
	u.until("the rule to go", func() bool { return !u.obeys("192.0.2.254 announces: destination 192.0.2.1/32") })
	if !u.obeys("192.0.2.254 announces: destination 2001:db8::1/128") || !u.obeys("192.0.2.253 announces: destination 192.0.2.77/32") {
		u.Errorf("other rules went, too: %v", u.rules())
	}
	u.must("birdc", "-s", ctl, "enable flows4")
	u.until("the rule to come back", func() bool { return u.obeys("192.0.2.254 announces: destination 192.0.2.1/32") })
}

// lost kills BIRD. The rules for its routes must stay for the graceful restart time of the policy, which is shorter than BIRD's. Then they must be
// removed. When BIRD runs again, they must be added again.
func (u *upstreams) lost() {
	u.Helper()
	killed := time.Now()
	u.bird.Process.Kill()
	u.bird.Wait()
	u.until("the rules of the lost session to go", func() bool { return !u.obeys("192.0.2.254 announces") })
	if after := time.Since(killed); after < 2*time.Second {
		u.Errorf("the rules of the lost session went after %v, before the time of graceful restart", after)
	}
	if !u.obeys("192.0.2.253 announces") {
		u.Errorf("the rules of another router went, too: %v", u.rules())
	}
	u.startBird()
	u.until("the rules to come back", func() bool { return u.obeys("192.0.2.254 announces: destination 192.0.2.1/32") })
}

// attacked makes hostile routers send the messages of hostileUpdates, which no router should send. Sessions may end, but the rules for routes of
// other routers must stay, and the daemon must survive.
func (u *upstreams) attacked() {
	u.Helper()
	before := strings.Count(u.said.String(), "rules of received routes are in force")
	after := func(name string) {
		u.Helper()
		u.until(name+": the rules of others", func() bool {
			return u.obeys("192.0.2.254 announces: destination 192.0.2.1/32") && u.obeys("192.0.2.253 announces: destination 192.0.2.77/32")
		})
		if n := len(u.rules()); n > 8 {
			u.Errorf("%s: %d rules, more than max", name, n)
		}
	}
	var together sync.WaitGroup
	for i, h := range u.hostile {
		if !h.alone {
			together.Go(func() { u.speak(u.listeners[i], h) })
		}
	}
	together.Wait()
	after("updates that are malformed, or that ask for what is not obeyed")
	for i, h := range u.hostile {
		if h.alone {
			u.speak(u.listeners[i], h)
			after(h.name)
		}
	}
	if after := strings.Count(u.said.String(), "rules of received routes are in force"); after-before > 40 {
		u.Errorf("%d transactions for the routes of hostile routers", after-before)
	}
}
