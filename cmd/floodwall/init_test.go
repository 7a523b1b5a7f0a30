// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/firstpolicy"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestInit writes the first policy of a host that runs servers, and applies it unchanged. Packets to these services must reach their sockets, and the
// operator must be able to log in. Nothing else may pass.
func TestInit(t *testing.T) {
	if !inside(t) {
		return
	}
	t.Chdir(t.TempDir())
	if out, err := floodwall("init"); err == nil || !strings.Contains(out, "hint: name it: floodwall init --device") {
		t.Errorf("init on a host without a default route: %v, %s", err, out)
	}
	sh(t, "ip link set fw0 address 02:00:00:00:00:02; ip route add default via 192.0.2.254; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.fw0.rp_filter=0")
	for _, address := range []string{"0.0.0.0:80", "[::]:22", "127.0.0.1:6379"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	served, local, closed := listenUDP(t, "0.0.0.0:5000"), listenUDP(t, "0.0.0.0:5353"), listenUDP(t, "127.0.0.1:5001")
	listenUDP(t, "0.0.0.0:51820")
	listenUDP(t, "0.0.0.0:41000") // this program serves udp/5000, so it is likely a client's
	serveUDP(t, 41001)
	sh(t, "ip link add tunnel0 type vxlan id 1 dstport 41002; ip link set tunnel0 up") // the socket belongs to the kernel, as with WireGuard
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	comm := strings.TrimSpace(string(name))
	out := mustFloodwall(t, "init")
	if !strings.HasPrefix(out, "wrote policy.yaml: 6 services on 1 device\nleft closed: udp/5353 ("+comm+"), which only hosts on the same link use; "+
		"udp/41000 ("+comm+"), at ports of clients,") {
		t.Errorf("init: %s", out)
	}
	text, err := os.ReadFile("policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\ndevices: [fw0]\n", "\n  # tcp/22: ", "from: [203.0.113.5]", "\n  - {name: ssh-tcp, port: tcp/22}\n",
		"\n  - {name: web-tcp, port: tcp/80, syn: protect} #", "\n  - {name: udp-5000, port: udp/5000} # with `udp: protect`,", "udp/5353 is left out",
		"\n  - {name: wireguard-udp, port: udp/51820} # with `udp: protect`,", "\n  # - {name: udp-41000, port: udp/41000}\n",
		"\n  # udp/41001: udpserver\n  - {name: udp-41001, port: udp/41001} #", "\n  - {name: udp-41002, port: udp/41002} #",
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("the policy has no %q:\n%s", line, text)
		}
	}
	if strings.Contains(string(text), "6379") || strings.Contains(string(text), "5001") {
		t.Errorf("the policy serves what only this host can reach:\n%s", text)
	}
	if out, err := floodwall("init"); err == nil || !strings.Contains(out, "policy.yaml exists, and stays as it is") {
		t.Errorf("init where there is a policy: %v, %s", err, out)
	}
	if again, err := os.ReadFile("policy.yaml"); err != nil || string(again) != string(text) {
		t.Errorf("init has changed the policy that was there: %v", err)
	}

	sendTo(t, "5353", "before")
	if got, _, _ := testutil.Receive(t, local, time.Minute); string(got) != "before" {
		t.Errorf("without a policy the port of the link received %q", got)
	}
	mustFloodwall(t, "apply", "policy.yaml")
	for packet, want := range map[string]string{
		"tcp 198.51.100.9:4000 > 192.0.2.1:22 S": "pass", "tcp 198.51.100.9:443 > 192.0.2.1:40000 SA": "drop",
		"udp 198.51.100.9:4000 > 192.0.2.1:41001": "pass", "udp 198.51.100.9:4000 > 192.0.2.1:41000": "drop",
		"tcp 198.51.100.9:4000 > 192.0.2.1:6379 S": "drop", "tcp 198.51.100.9:443 > 192.0.2.1:40000 S": "drop",
	} {
		if out, _ := floodwall("explain", "--live", packet); !strings.Contains(out, "verdict  "+want) {
			t.Errorf("%s: want %s: %s", packet, want, out)
		}
	}
	sendTo(t, "5353", "closed")
	sendTo(t, "5001", "closed")
	sendTo(t, "5000", "open")
	if got, _, _ := testutil.Receive(t, served, time.Minute); string(got) != "open" {
		t.Errorf("the port that is served received %q", got)
	}
	// Frames arrive in order, so all frames that were sent earlier have arrived by now.
	for _, c := range []*net.UDPConn{local, closed} {
		if got, _, ok := testutil.Receive(t, c, time.Millisecond); ok {
			t.Errorf("%s received %q", c.LocalAddr(), got)
		}
	}
}

// TestInitPrivate writes the first policy of a host with a database, a port that NAT forwards to a container, and a VRRP program. The policy must
// drop packets from the Internet to the database. It must pass VRRP from neighbours.
func TestInitPrivate(t *testing.T) {
	if !inside(t) {
		return
	}
	t.Chdir(t.TempDir())
	sh(t, "ip link set fw0 address 02:00:00:00:00:02; ip route add default via 192.0.2.254; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.fw0.rp_filter=0")
	sh(t, `nft 'table ip nat { chain pre { type nat hook prerouting priority dstnat; tcp dport 8080 dnat to 172.17.0.2:80; tcp dport { 8090, 8091 } dnat to 172.17.0.2; ip daddr 127.0.0.1 tcp dport 8081 dnat to 172.17.0.2:81; }; }'`)
	l, err := net.Listen("tcp", "0.0.0.0:3306")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	vrrp, err := net.ListenPacket("ip4:112", "0.0.0.0")
	if err != nil {
		t.Fatal(err)
	}
	defer vrrp.Close()
	write := func(file string, lines ...string) {
		t.Helper()
		out := mustFloodwall(t, "init", file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(out+string(text), line) {
				t.Errorf("init has no %q: %s\n%s", line, out, text)
			}
		}
		if strings.Contains(string(text), "8081") {
			t.Errorf("a port that only this host asks for is open:\n%s", text)
		}
	}
	write("public.yaml", "left closed: tcp/3306 (", "\n  # - {name: mysql-tcp, port: tcp/3306, from: [203.0.113.5]}", "\n  - {name: tcp-8080, port: tcp/8080} #", "\n  - {name: tcp-8091, port: tcp/8091} #",
		"\n  # A program listens for VRRP.\n  - {name: raw-112, proto: 112, from: [192.0.2.0/24")
	mustFloodwall(t, "apply", "public.yaml")
	for packet, want := range map[string]string{
		"proto=112 192.0.2.9 > 224.0.0.18": "pass", "proto=112 198.51.100.9 > 224.0.0.18": "drop", "proto=89 192.0.2.9 > 224.0.0.5": "drop",
		"tcp 198.51.100.9:4000 > 192.0.2.1:3306 S": "drop", "tcp 198.51.100.9:4000 > 192.0.2.1:8080 S": "pass",
	} {
		if out, _ := floodwall("explain", "--live", packet); !strings.Contains(out, "verdict  "+want) {
			t.Errorf("%s: want %s: %s", packet, want, out)
		}
	}
	sh(t, "ip addr add 10.1.0.1/24 dev fw0")
	write("private.yaml", "\n  - {name: mysql-tcp, port: tcp/3306, from: [10.1.0.0/24]}")
	mustFloodwall(t, "unload")
	sh(t, "nft delete table ip nat")
}

// TestInitProposals enables the proposed rules and services in the first policies of several hosts, by removing the # in front. It enables one at a
// time, and then all of them. The policy must be valid with and without each proposal.
func TestInitProposals(t *testing.T) {
	t.Parallel()
	service := func(proto uint8, port uint16) firstpolicy.Service {
		return firstpolicy.Service{Service: sockets.Service{Proto: proto, Port: port}}
	}
	ssh, web, high := service(unix.IPPROTO_TCP, 22), service(unix.IPPROTO_TCP, 80), service(unix.IPPROTO_TCP, 40000)
	last, dns, vpn := service(unix.IPPROTO_TCP, 60999), service(unix.IPPROTO_UDP, 53), service(unix.IPPROTO_UDP, 40001)
	usual := [2]int{32768, 60999}
	for name, h := range map[string]firstpolicy.Host{
		"serves nothing":                 {Clients: usual},
		"serves the web":                 {Clients: usual, Services: []firstpolicy.Service{ssh, web, dns}},
		"serves at ports of clients":     {Clients: usual, Services: []firstpolicy.Service{last, high, web, vpn}, Unsure: []firstpolicy.Service{service(unix.IPPROTO_UDP, 41000)}},
		"has a database":                 {Clients: usual, Private: []firstpolicy.Service{service(unix.IPPROTO_TCP, 5432)}, Raw: []uint8{2, 47, 112}},
		"has what only the link can use": {Clients: usual, Services: []firstpolicy.Service{web}, LeftOut: []firstpolicy.Service{service(unix.IPPROTO_UDP, 5353)}},
	} {
		h.Devices = []string{"eth0"}
		text := h.Policy("policy.yaml")
		proposed := regexp.MustCompile(`(?m)^  # - \{`).FindAllStringIndex(text, -1)
		if want := len(h.Unsure) + len(h.Private); len(proposed) != want {
			t.Errorf("a host that %s: %d proposals, want %d:\n%s", name, len(proposed), want, text)
		}
		policies := []string{text, strings.ReplaceAll(text, "\n  # - {", "\n  - {")}
		for _, at := range proposed {
			policies = append(policies, text[:at[0]]+"  - {"+text[at[1]:])
		}
		for _, p := range policies {
			if err := checks("policy.yaml", p); err != nil {
				t.Errorf("a host that %s: %v:\n%s", name, err, p)
			}
		}
	}
}

// TestShortQueries opens and closes client sockets, like a resolver that uses a new port for each query. None of these sockets may count as a
// service.
func TestShortQueries(t *testing.T) {
	if !inside(t) {
		return
	}
	t.Chdir(t.TempDir())
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for port := 42000; port < 60000; port++ {
			c, err := net.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", port))
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case <-stop:
				c.Close()
				return
			case <-time.After(time.Millisecond):
			}
			c.Close()
		}
	}()
	listenUDP(t, "0.0.0.0:41000")
	mustFloodwall(t, "init", "--device", "fw0")
	close(stop)
	<-done
	text, err := os.ReadFile("policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n  - {name: udp-41000, port: udp/41000} #") {
		t.Errorf("the socket that stays is no service:\n%s", text)
	}
	if n := strings.Count(string(text), "port: udp/"); n > 2 { // one more may be open at both looks of a machine that has stopped in between
		t.Errorf("%d services of UDP:\n%s", n, text)
	}
}

// sendTo sends a text to a UDP port from outside.
func sendTo(t *testing.T, port, text string) {
	t.Helper()
	if err := testutil.Send("fw1", fmt.Sprintf("udp 198.51.100.9:4000 > 192.0.2.1:%s payload=%q", port, text), 1); err != nil {
		t.Fatal(err)
	}
}

// serveUDP starts another process that serves a UDP port.
func serveUDP(t *testing.T, port int) {
	t.Helper()
	cmd := exec.Command("udpserver", fmt.Sprintf("0.0.0.0:%d", port)) // TestMain handles it
	if err := testutil.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	bound := func() bool {
		c, err := net.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", port))
		if err == nil {
			c.Close()
		}
		return err != nil
	}
	if !testutil.Eventually(time.Minute, bound) {
		t.Fatalf("nothing listens at udp/%d", port)
	}
}

// udpServer is a program that serves UDP at the address in its argument.
func udpServer() {
	c, err := net.ListenPacket("udp4", os.Args[1])
	for err == nil {
		_, _, err = c.ReadFrom(make([]byte, 1))
	}
	panic(err)
}

func listenUDP(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	c, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UDPConn)
}
