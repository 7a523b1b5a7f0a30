// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// recipe is a policy of a guide, with the exchanges that the policy must allow and those that it must prevent.
type recipe struct {
	guide, file string
	setup       string // of the host, as a script for sh
	listens     []int
	exchanges   []exchange
	targets     []string // nil: all
	more        func(t *testing.T, s natSite, target string)
}

// exchange is a connection, or a datagram and its answer. The field from is an address of the client, which has the addresses of an administrator, of
// the resolver, of another host of the network, and of a stranger. "" stands for the host itself, and "behind" for the server behind the host.
type exchange struct {
	from, network, to string
	want              bool
}

const (
	stranger = "198.51.100.7"
	admin    = "203.0.113.5"
	resolver = "192.0.2.53"
	neighbor = "192.0.2.2"
)

// recipes are the policies of guides about a certain kind of host.
var recipes = map[string]recipe{
	"mail": {guide: "mail-server.md", file: "policy.yaml", listens: []int{25, 587, 993, 22, 3306}, exchanges: []exchange{
		{stranger, "tcp", "192.0.2.1:25", true}, {stranger, "tcp", "192.0.2.1:587", true}, {stranger, "tcp", "192.0.2.1:993", true},
		{stranger, "tcp", "192.0.2.1:22", false}, {admin, "tcp", "192.0.2.1:22", true}, {admin, "tcp", "192.0.2.1:3306", false},
		{"", "tcp", stranger + ":25", true}, {"", "udp", resolver + ":53", true}, {"", "tcp", resolver + ":53", true}, {"", "udp", stranger + ":53", true},
	}},
	"vpn": {guide: "vpn-server.md", file: "policy.yaml", setup: portForwards["nft"], listens: []int{51820, 22, 53}, exchanges: []exchange{
		{stranger, "udp", "192.0.2.1:51820", true}, {stranger, "tcp", "192.0.2.1:51820", false}, {stranger, "udp", "192.0.2.1:53", false},
		{stranger, "tcp", "192.0.2.1:22", false}, {admin, "tcp", "192.0.2.1:22", true},
		{"behind", "tcp", stranger + ":25", true}, {"behind", "udp", stranger + ":8888", true}, {"", "tcp", stranger + ":25", true},
	}, targets: []string{"xdp", "nftables"}, more: handshakes},
	"kubernetes": {guide: "kubernetes-node.md", file: "policy.yaml", listens: []int{8472, 10250, 6443, 443, 22}, setup: `t="iptables -t nat"
$t -N KUBE-NODEPORTS; $t -N KUBE-EXT-1; $t -N KUBE-SEP-1
$t -A PREROUTING -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
$t -A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-1; $t -A KUBE-EXT-1 -j KUBE-SEP-1
$t -A KUBE-SEP-1 -p tcp -m tcp -j DNAT --to-destination 10.9.0.2:80
$t -A POSTROUTING -s 10.9.0.0/24 ! -d 10.9.0.0/24 -j MASQUERADE`, exchanges: []exchange{
		{stranger, "tcp", "192.0.2.1:443", true}, {stranger, "tcp", "192.0.2.1:30080", true}, {stranger, "tcp", "192.0.2.1:10250", false},
		{neighbor, "tcp", "192.0.2.1:10250", true}, {neighbor, "udp", "192.0.2.1:8472", true}, {stranger, "udp", "192.0.2.1:8472", false},
		{stranger, "tcp", "192.0.2.1:6443", false}, {admin, "tcp", "192.0.2.1:6443", true}, {admin, "tcp", "192.0.2.1:22", true},
		{"behind", "tcp", stranger + ":25", true}, {"behind", "udp", resolver + ":53", true}, {"", "tcp", neighbor + ":7777", true},
	}},
	"port forwards": {guide: "router.md", file: "forwards.yaml", setup: portForwards["nft"], listens: []int{22}, exchanges: []exchange{
		{stranger, "tcp", "192.0.2.1:8080", true}, {stranger, "udp", "192.0.2.1:8084", true}, {stranger, "tcp", "192.0.2.1:8081", false},
		{stranger, "tcp", "192.0.2.1:8082", false}, {admin, "tcp", "192.0.2.1:22", false},
		{"behind", "tcp", stranger + ":25", true}, {"behind", "udp", resolver + ":53", true}, {"", "udp", resolver + ":53", true},
	}},
}

// TestRecipes applies the policies of guides on each target. They are unchanged, except for the name of the device. It sends the traffic that such a
// host needs, and traffic that the policy must drop.
func TestRecipes(t *testing.T) {
	for name, r := range recipes {
		t.Run(name, func(t *testing.T) {
			if inside(t) {
				r.follow(t)
			}
		})
	}
}

func (r recipe) follow(t *testing.T) {
	s := newNATSite(t, r.setup+`
for net in 203.0.113.0/24 198.51.100.0/24; do ip route add $net dev fw0; done`)
	s.client.Do(func() {
		script(t, fmt.Sprintf("for a in %s %s %s; do ip addr add $a/32 dev fw1; done", stranger, admin, resolver))
		for _, address := range []string{stranger + ":25", stranger + ":8888", stranger + ":53", resolver + ":53"} {
			greet(t, address)
		}
	})
	for _, port := range r.listens {
		greet(t, fmt.Sprintf(":%d", port))
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, file, strings.ReplaceAll(r.policy(t), "eth0", "fw0"))
	if r.targets == nil {
		r.targets = []string{"xdp", "nftables", "iptables"}
	}
	for _, target := range r.targets {
		mustFloodwall(t, "apply", file, "--force", "--target", target)
		for _, x := range r.exchanges {
			if err := s.exchange(x); (err == nil) != x.want {
				t.Errorf("%s: %q by %s to %s: %v, want an answer: %t", target, x.from, x.network, x.to, err, x.want)
			}
		}
		if r.more != nil {
			r.more(t, s, target)
		}
	}
	mustFloodwall(t, "unload")
}

// policy returns the text of the recipe's file in its guide.
func (r recipe) policy(t *testing.T) string {
	for _, f := range fences(t, filepath.Join("docs/guides", r.guide)) {
		if f.file == r.file {
			return f.text
		}
	}
	t.Fatalf("%s has no file %s", r.guide, r.file)
	return ""
}

// exchange makes an exchange, and returns an error if it fails.
func (s natSite) exchange(x exchange) (err error) {
	ask := func() { err = askFor(x.from, x.network, x.to, answerTime(x.want)) }
	switch x.from {
	case "":
		ask()
	case "behind":
		x.from = ""
		s.server.Do(ask)
	default:
		s.client.Do(ask)
	}
	return err
}

// answerTime returns the time for which the test waits for an answer. For an answer that must not arrive, the time is short.
func answerTime(wanted bool) time.Duration {
	if wanted {
		return 30 * time.Second
	}
	return 300 * time.Millisecond
}

// askFor connects and reads the word of greet. The parameter from is an address of the calling thread's network namespace, or "" for any address.
func askFor(from, network, to string, patience time.Duration) error {
	c, err := dialFrom(from, network, to, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	n, end := 0, time.Now().Add(patience)
	for again := time.Second; ; again *= 2 { // the first packets on a link may be lost
		if network == "udp" {
			if _, err := c.Write([]byte("hello")); err != nil {
				return err
			}
			c.SetReadDeadline(time.Now().Add(min(again, time.Until(end))))
		}
		if n, err = c.Read(make([]byte, 10)); network != "udp" || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			break
		}
	}
	if err == nil && n != len("welcome") {
		return fmt.Errorf("%d bytes were read", n)
	}
	return err
}

// dialFrom opens a connection with a socket of the calling thread. If there is only one address, the dialer starts no other goroutine, so it stays on
// this thread.
func dialFrom(from, network, to string, patience time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	if from != "" && network == "udp" {
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
	} else if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial(network, to)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// handshakes floods the VPN's port with handshake initiations from one address. The limit must drop most of them. Traffic of tunnels must pass, and a
// handshake initiation from another network must pass.
func handshakes(t *testing.T, s natSite, target string) {
	const sent = 1000
	answered := 0
	s.client.Do(func() {
		c, err := dialFrom(stranger, "udp", "192.0.2.1:51820", 30*time.Second)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		first := append([]byte{1, 0, 0, 0}, make([]byte, 144)...)
		start := time.Now()
		for range sent {
			if _, err := c.Write(first); err != nil {
				t.Errorf("%s: %v", target, err)
			}
		}
		took := time.Since(start)
		for wait := answerTime(true); testutil.Arrives(t, c.(*net.UDPConn), wait); wait = time.Second {
			answered++
			took = time.Since(start)
		}
		most := 25 + int(12*took.Seconds()) // the burst, and what the rate allows until the last answer
		if answered == 0 || answered > most {
			t.Errorf("%s: %d of %d handshakes were answered, want 1 to %d", target, answered, sent, most)
		}
	})
	for _, from := range []string{stranger, admin} {
		if err := s.exchange(exchange{from, "udp", "192.0.2.1:51820", true}); err != nil {
			t.Errorf("%s: during handshakes of %s, traffic of %s: %v", target, stranger, from, err)
		}
	}
}
