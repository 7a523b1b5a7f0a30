// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/test/testutil"
)

// portsPolicy opens the web, SSH for some, and a port at which nothing listens.
const portsPolicy = `devices: [fw0]
default: drop
rules:
  - {name: vpn, port: udp/500, proto: udp, then: pass}
services:
  - {name: web, port: [tcp/80, tcp/443]}
  - {name: game, port: udp/41001}
  - {name: ssh, port: tcp/22, from: 203.0.113.0/24}
`

// TestStatusPorts runs programs at ports that a policy opens, at ports that it closes, and on the loopback device, and a raw socket. Status must name
// the closed ones with a remedy, and the open port at which nothing listens, on each target. It must name nothing when the policy passes packets by
// default, and follow programs that start and end.
func TestStatusPorts(t *testing.T) {
	if !inside(t) {
		return
	}
	writeFile(t, "/proc/self/comm", "java")
	sh(t, "ip link set lo up; sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
	listen := func(address string) net.Listener {
		t.Helper()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	for _, address := range []string{"0.0.0.0:80", "[::]:22", "127.0.0.1:6379", "0.0.0.0:3306", "[::]:8080"} {
		listen(address)
	}
	app := listen("0.0.0.0:8081")
	listenUDP(t, "0.0.0.0:500")
	listenUDP(t, "0.0.0.0:5353")  // for hosts on the same link
	listenUDP(t, "0.0.0.0:41000") // perhaps the socket of a client
	listenUDP(t, "0.0.0.0:41001") // a service at such a port
	vrrp, err := net.ListenPacket("ip4:112", "0.0.0.0")
	if err != nil {
		t.Fatal(err)
	}
	defer vrrp.Close()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, file, portsPolicy)
	ports := func() (closed, unused []string) {
		t.Helper()
		var s control.Status
		if err := json.Unmarshal([]byte(mustFloodwall(t, "status", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Ports {
			if p.Closed {
				closed = append(closed, p.Port)
			} else {
				unused = append(unused, p.Port)
			}
		}
		return closed, unused
	}
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", file, "--target", target)
		closed, unused := ports()
		if got := strings.Join(closed, " "); got != "tcp/3306 tcp/8080 tcp/8081 VRRP" {
			t.Errorf("%s: closed are %q", target, got)
		}
		if got := strings.Join(unused, " "); got != "tcp/443" {
			t.Errorf("%s: unused are %q", target, got)
		}
		mustFloodwall(t, "unload")
	}
	mustFloodwall(t, "apply", file)
	out := mustFloodwall(t, "status")
	for _, line := range []string{
		"\ntcp/8080 (java) listens and is closed: floodwall allow tcp/8080\n", "\na program listens for VRRP, which is closed: `- {name: raw-112,",
		") listens and is closed, as a database is not meant for the world: ", "\nopen, and nothing listens there: tcp/443\n",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("status has no %q:\n%s", line, out)
		}
	}
	mustFloodwall(t, "temporary", "add", "{name: brief, port: tcp/99, then: drop}", "--for", "10m") // makes the program anew
	if closed, _ := ports(); len(closed) != 4 {
		t.Errorf("with a temporary rule: closed are %q", closed)
	}
	app.Close()
	listen("0.0.0.0:443")
	if closed, unused := ports(); strings.Contains(strings.Join(closed, " "), "8081") || unused != nil {
		t.Errorf("after a program has ended and another one started: closed are %q, unused %q", closed, unused)
	}
	sh(t, "sysctl -qw net.ipv4.ip_forward=1")
	writeFile(t, file, strings.Replace(portsPolicy, "tcp/443", "tcp/444", 1))
	mustFloodwall(t, "apply", file)
	if closed, unused := ports(); len(closed) != 4 || unused != nil {
		t.Errorf("on a router: closed are %q, unused %q", closed, unused)
	}
	writeFile(t, file, strings.Replace(portsPolicy, "default: drop", "default: pass", 1))
	mustFloodwall(t, "apply", file)
	if closed, unused := ports(); closed != nil || unused != nil {
		t.Errorf("when the default passes: closed are %q, unused %q", closed, unused)
	}
}

// TestStatusNAT publishes ports of containers, as Docker does. Status must name those that the policy closes, and must not call one that it opens unused.
func TestStatusNAT(t *testing.T) {
	if !inside(t) {
		return
	}
	sh(t, "ip link set lo up; sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
	testutil.Veth(t, "srv0", "srv1", "10.9.0.1/24")
	sh(t, portForwards["docker"]+"; iptables -t nat -A DOCKER -i srv0 -p udp --dport 53 -j REDIRECT --to-ports 5300")
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, file, "devices: [fw0]\ndefault: drop\nservices: [{name: app, port: [tcp/8080, tcp/8082]}, {name: quic, port: [udp/8080-8084]}]\n")
	mustFloodwall(t, "apply", file, "--force")
	out := mustFloodwall(t, "status")
	for _, line := range []string{
		"\ntcp/8081 is sent on by NAT to 10.9.0.2:81 and [fd09::2]:81 and closed: floodwall allow tcp/8081\n", "\ntcp/8084 is sent on by NAT to :84 and closed: floodwall allow tcp/8084\n",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("status has no %q:\n%s", line, out)
		}
	}
	for _, other := range []string{"nothing listens there", "udp/53", "tcp/8080 is sent", "udp/8081 is sent"} {
		if strings.Contains(out, other) {
			t.Errorf("status has %q:\n%s", other, out)
		}
	}
}

// TestPortLines limits the lines of status.
func TestPortLines(t *testing.T) {
	t.Parallel()
	var many []exposed.Port
	for range 10 {
		many = append(many, exposed.Port{Port: "tcp/1", Closed: true, Text: "closed"}, exposed.Port{Port: "tcp/2"})
	}
	lines := portLines(many)
	if len(lines) != 6 || !strings.HasPrefix(lines[4], "6 more listen and are closed: ") || !strings.HasSuffix(lines[5], "tcp/2, 2 more") {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}
