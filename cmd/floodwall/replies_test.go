// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/floodwall/floodwall/test/testutil"
)

// far4 and far6 are addresses of the servers of TestUsesWithoutRules. The servers are far away, behind a link with a smaller MTU.
const (
	far4 = "198.51.100.7"
	far6 = "2001:db8:7::7"
)

// closedPolicy has no rule for replies.
const closedPolicy = `devices: [fw0]
default: drop
services:
  - {name: ssh, port: tcp/22, from: 203.0.113.0/24}
`

// use is an activity of a host that receives answers. The field run is a shell script, in which ADDR is the server, HOST is the server in a URL, and
// SIX is 6 for IPv6.
type use struct{ name, run string }

var uses = []use{
	{"curl", "curl -sS -m 30 http://HOST/hello | grep -qx hello"},
	{"download", "[ $(curl -sS -m 60 http://HOST/large | wc -c) = 3000000 ]"},
	{"upload over a small link", "head -c 300000 /dev/zero | curl -sS -m 60 -H Expect: --data-binary @- http://HOST/take | grep -qx 300000"},
	{"apt", `d=$(mktemp -d); mkdir -p $d/lists/partial; echo "deb [trusted=yes] http://HOST/debian ./" >$d/list
apt-get -qq -o Dir::Etc::sourcelist=$d/list -o Dir::Etc::sourceparts=- -o Dir::Etc::parts=- -o Dir::State::lists=$d/lists -o Dir::Cache=$d -o APT::Sandbox::User= \
	-o Acquire::Retries=0 -o Acquire::http::Timeout=30 -o Debug::NoLocking=1 update && grep -q floodwall-test $d/lists/*Packages*; s=$?; rm -rf $d; exit $s`},
	{"ping", "busybox pingSIX -c 1 -W 30 ADDR >/dev/null"},
	{"ping with fragments", "busybox pingSIX -c 3 -i 0.2 -W 5 -s 3000 ADDR >/dev/null"}, // over IPv6, the first packet is lost at the link with the smaller MTU
	{"traceroute", "[ $(busybox tracerouteSIX -n -q 2 -w 5 -m 4 ADDR 2>&1 | grep -c ' ms') -ge 2 ]"},
	{"git", "d=$(mktemp -d); git clone -q git://HOST/project $d/copy && [ -e $d/copy/file ]; s=$?; rm -rf $d; exit $s"},
	{"FTP, passive", "d=$(mktemp); busybox timeout 60 busybox ftpget -u me -p me ADDR $d file && grep -qx content $d; s=$?; rm -f $d; exit $s"},
}

// TestUsesWithoutRules runs the activities on a host, and in a container behind it, with distant servers. The policy has no rule for replies. The
// container's IPv4 is masqueraded, its IPv6 is not.
func TestUsesWithoutRules(t *testing.T) {
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		t.Run(target, func(t *testing.T) {
			if !inside(t) {
				return
			}
			for _, tool := range []string{"busybox", "git", "dropbear", "curl", "apt-get"} {
				testutil.RequireTool(t, tool)
			}
			s := newFarSite(t)
			file := filepath.Join(t.TempDir(), "policy.yaml")
			writeFile(t, file, closedPolicy)
			mustFloodwall(t, "apply", file, "--force", "--target", target)
			for _, from := range []struct {
				name string
				do   func(func())
			}{{"host", func(f func()) { f() }}, {"container", s.server.Do}} {
				for _, address := range []string{far4, far6} {
					for _, u := range uses {
						from.do(func() { u.try(t, from.name, address) })
					}
					from.do(func() { askNames(t, from.name, address) })
					for name, port := range dialogues {
						from.do(func() { port.have(t, name, from.name, address) })
					}
				}
			}
			s.fixedPorts(t, target)
			if err := s.connect(s.client, "tcp", "192.0.2.1:8080", false); err == nil {
				t.Error("a port without a rule is open")
			}
			mustFloodwall(t, "unload")
		})
	}
}

func (u use) try(t *testing.T, from, address string) {
	host, six := address, ""
	if strings.Contains(address, ":") {
		host, six = "["+address+"]", "6"
	}
	run := strings.NewReplacer("ADDR", address, "HOST", host, "SIX", six).Replace(u.run)
	if out, err := exec.Command("sh", "-c", run).CombinedOutput(); err != nil {
		t.Errorf("%s, %s from the %s: %v\n%s", u.name, address, from, err, out)
	}
}

// farSite is a natSite with another host far away, behind the client.
type farSite struct {
	natSite
	far *testutil.Elsewhere
}

func newFarSite(t *testing.T) *farSite {
	s := &farSite{newNATSite(t, `iptables -t nat -A POSTROUTING -s 10.9.0.0/24 -o fw0 -j MASQUERADE
ip route add 198.51.100.0/24 via 192.0.2.2; ip -6 route add 2001:db8:7::/64 via 2001:db8::2`), testutil.NewElsewhere(t)}
	testutil.Veth(t, "mid0", "far0")
	s.client.Take(t, "mid0")
	s.far.Take(t, "far0")
	s.client.Do(func() {
		script(t, `ip link set mid0 mtu 1300; ip link set mid0 up; ip addr add 198.51.100.1/24 dev mid0; ip addr add 2001:db8:7::1/64 dev mid0 nodad
ip -6 route add fd09::/64 via 2001:db8::1; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`)
	})
	s.far.Do(func() {
		script(t, `ip link set lo up; ip link set far0 mtu 1300; ip link set far0 up; ip addr add 198.51.100.7/24 dev far0; ip addr add 2001:db8:7::7/64 dev far0 nodad
ip route add default via 198.51.100.1; ip -6 route add default via 2001:db8:7::1`)
		serveFar(t)
	})
	return s
}

// fixedPorts exchanges datagrams between the host and the distant host, as WireGuard does. Both ports are fixed, and no rule opens them. The host
// sends first. After that, either may send.
func (s *farSite) fixedPorts(t *testing.T, target string) {
	for _, ends := range [][2]string{{"192.0.2.1", far4}, {"2001:db8::1", far6}} {
		own, other := net.JoinHostPort(ends[0], "51000"), net.JoinHostPort(ends[1], "51001")
		here, err := net.ListenPacket("udp", own)
		if err != nil {
			t.Error(err)
			return
		}
		var there net.PacketConn
		s.far.Do(func() { there, err = net.ListenPacket("udp", other) })
		if err != nil {
			t.Error(err)
			return
		}
		carries := func(from, to net.PacketConn, wait time.Duration) bool {
			to.SetReadDeadline(time.Now().Add(wait))
			from.WriteTo([]byte("handshake"), to.LocalAddr())
			_, _, err := to.ReadFrom(make([]byte, 10))
			return err == nil
		}
		if carries(there, here, 300*time.Millisecond) {
			t.Errorf("%s: %s gets in before %s has sent", target, other, own)
		}
		for range 2 {
			if !carries(here, there, answerTime(true)) || !carries(there, here, answerTime(true)) {
				t.Errorf("%s: %s and %s do not talk", target, own, other)
			}
		}
		here.Close()
		there.Close()
	}
}

// askNames sends a DNS query whose answer has 4,000 bytes: over UDP, where the answer is fragmented, and over TCP.
func askNames(t *testing.T, from, address string) {
	for _, network := range []string{"udp", "tcp"} {
		q := new(dns.Msg).SetQuestion("large.example.", dns.TypeTXT).SetEdns0(4096, false)
		c := dns.Client{Net: network, UDPSize: 4096, Timeout: 5 * time.Second}
		var answer *dns.Msg
		var err error
		testutil.Eventually(answerTime(true), func() bool { // a resolver asks again, too
			answer, _, err = c.Exchange(q, net.JoinHostPort(address, "53"))
			return err == nil
		})
		if err == nil && answer.Len() < 3500 {
			err = fmt.Errorf("%d bytes", answer.Len())
		}
		if err != nil {
			t.Errorf("DNS by %s, %s from the %s: %v", network, address, from, err)
		}
	}
}

// dialogue is an exchange with a server, over a connection or by datagrams.
type dialogue struct {
	network, port string
	talk          func(net.Conn) error
}

var dialogues = map[string]dialogue{"SMTP": {"tcp", "25", mailDialogue}, "SSH": {"tcp", "22", keyDialogue}, "NTP": {"udp", "123", timeDialogue}}

func (d dialogue) have(t *testing.T, name, from, address string) {
	once := func(patience time.Duration) error {
		c, err := dialFrom("", d.network, net.JoinHostPort(address, d.port), patience)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		return d.talk(c)
	}
	var err error
	if d.network == "tcp" {
		err = once(answerTime(true))
	} else { // a datagram may be lost
		testutil.Eventually(answerTime(true), func() bool { err = once(5 * time.Second); return err == nil })
	}
	if err != nil {
		t.Errorf("%s, %s from the %s: %v", name, address, from, err)
	}
}
