package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/testutil"
)

// TestInit writes the first policy of a host that serves, and applies it as it is. What is served reaches its sockets, and the operator
// can log in; nothing else comes in.
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
	listenUDP(t, "0.0.0.0:41000")
	out := mustFloodwall(t, "init")
	if !strings.HasPrefix(out, "wrote policy.yaml: 4 services on 1 device\n") {
		t.Errorf("init: %s", out)
	}
	text, err := os.ReadFile("policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\ndevices: [fw0]\n", "\n  # tcp/22: ", "from: [203.0.113.5]", "\n  - {name: ssh-tcp, port: tcp/22}\n",
		"\n  - {name: web-tcp, port: tcp/80, syn: protect} #", "\n  - {name: udp-5000, port: udp/5000}\n", "udp/5353 is left out",
		"\n  - {name: wireguard-udp, port: udp/51820}\n", "\n  # - {name: udp-41000, port: udp/41000}\n",
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
	if got := receive(local, time.Minute); got != "before" {
		t.Errorf("without a policy the port of the link received %q", got)
	}
	mustFloodwall(t, "apply", "policy.yaml")
	for packet, want := range map[string]string{
		"tcp 198.51.100.9:4000 > 192.0.2.1:22 S": "pass", "tcp 198.51.100.9:443 > 192.0.2.1:40000 SA": "pass",
		"tcp 198.51.100.9:4000 > 192.0.2.1:6379 S": "drop", "tcp 198.51.100.9:443 > 192.0.2.1:40000 S": "drop",
	} {
		if out, _ := floodwall("explain", "--live", packet); !strings.Contains(out, "verdict  "+want) {
			t.Errorf("%s: want %s: %s", packet, want, out)
		}
	}
	sendTo(t, "5353", "closed")
	sendTo(t, "5001", "closed")
	sendTo(t, "5000", "open")
	if got := receive(served, time.Minute); got != "open" {
		t.Errorf("the port that is served received %q", got)
	}
	// The frames before it came before it.
	for _, c := range []net.PacketConn{local, closed} {
		if got := receive(c, time.Millisecond); got != "" {
			t.Errorf("%s received %q", c.LocalAddr(), got)
		}
	}
}

// sendTo sends a text to a port of UDP from outside.
func sendTo(t *testing.T, port, text string) {
	t.Helper()
	if err := testutil.Send("fw1", fmt.Sprintf("udp 198.51.100.9:4000 > 192.0.2.1:%s payload=%q", port, text), 1); err != nil {
		t.Fatal(err)
	}
}

func listenUDP(t *testing.T, address string) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// receive is what comes to a socket within a time, "" for nothing.
func receive(c net.PacketConn, within time.Duration) string {
	c.SetReadDeadline(time.Now().Add(within))
	b := make([]byte, 100)
	n, _, err := c.ReadFrom(b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}
