// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// large is the size in bytes of a datagram that needs three fragments.
const large = 4000

// closed are policies that drop all packets except those to a UDP service, and the answers of another UDP service to this host.
var closed = []struct{ name, text string }{
	{"replies", `
default: drop
services: [{name: dns, port: udp/53}]
`},
	{"ports", `
default: drop
replies: drop
checks: strict
rules: [{name: answers, sport: udp/7777, then: pass}]
services: [{name: dns, port: udp/53}]
`},
	{"state", `
default: drop
replies: drop
rules: [{name: answers, state: [established, related], then: pass}]
services: [{name: dns, port: udp/53}]
`},
	{"at filter", `
default: drop
replies: drop
placement: filter
rules: [{name: answers, sport: udp/7777, then: pass}]
services: [{name: dns, port: udp/53}]
`},
}

// echoUDP makes a host answer datagrams to a port, over IPv4 and IPv6. It answers the text "large" with a large datagram, and returns any other
// datagram.
func (s *scene) echoUDP(h *lab.Host, port uint16) {
	s.Helper()
	for _, ip := range []string{"0.0.0.0", "::"} {
		err := h.Do(func() error {
			network := map[bool]string{true: "udp4", false: "udp6"}[ip == "0.0.0.0"]
			c, err := net.ListenPacket(network, netip.AddrPortFrom(netip.MustParseAddr(ip), port).String())
			if err != nil {
				return err
			}
			s.Cleanup(func() { c.Close() })
			go answer(c)
			return nil
		})
		if err != nil {
			s.Fatal(err)
		}
	}
}

func answer(c net.PacketConn) {
	buf := make([]byte, 2*large)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if string(buf[:n]) == "large" {
			n = copy(buf, bytes.Repeat([]byte{'.'}, large))
		}
		c.WriteTo(buf[:n], from)
	}
}

// exchange sends a question to a UDP server, and reports whether an answer arrives. It tries several times, because a busy machine may lose a
// question or an answer.
func (s *scene) exchange(from *lab.Host, to string, question []byte, tries int) bool {
	s.Helper()
	c, err := from.Dial(s.ctx, "udp", netip.MustParseAddrPort(to))
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 2*large)
	for range tries {
		if _, err := c.Write(question); err != nil {
			s.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(buf)
		if err == nil {
			if n != large {
				s.Errorf("%s answered with %d bytes", to, n)
			}
			return true
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			s.Fatal(err)
		}
	}
	return false
}

// TestLargeDatagrams exchanges 4,000 bytes between a client and a UDP service. Another server sends answers of this size to this host. The policies
// have `default: drop`, and the test uses IPv4 and IPv6. Without the rule for fragments, or with a rule that drops fragments, none of these datagrams
// would arrive.
func TestLargeDatagrams(t *testing.T) {
	inScene(t, func(s *scene) {
		s.echoUDP(s.server, 53)
		s.echoUDP(s.client, 7777)
		question := bytes.Repeat([]byte{'?'}, large)
		for _, target := range targets {
			for _, c := range closed {
				s.apply(target, c.text)
				for _, to := range []string{"10.1.0.2:53", "[fd01::2]:53"} {
					if !s.exchange(s.client, to, question, 20) {
						t.Errorf("%s: %s: no answer of %s to %d bytes", target, c.name, to, large)
					}
				}
				for _, to := range []string{"10.1.0.1:7777", "[fd01::1]:7777"} {
					if !s.exchange(s.server, to, []byte("large"), 20) {
						t.Errorf("%s: %s: an answer of %d bytes did not come from %s", target, c.name, large, to)
					}
				}
			}
		}
	})
}

// TestLargeDatagramsUntracked sends 4,000 bytes to a service. The policy drops by default at filter, where iptables rejects. Each target runs in a
// new namespace without conntrack, which would reassemble fragments. So the filter table sees the fragments of IPv6.
func TestLargeDatagramsUntracked(t *testing.T) {
	for _, target := range targets {
		t.Run(string(target), func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.echoUDP(s.server, 53)
				s.apply(target, "default: drop\nreplies: drop\nrules: [{port: tcp/99, family: ipv4, then: reject}]\nservices: [{name: dns, port: udp/53}]\n")
				for _, to := range []string{"10.1.0.2:53", "[fd01::2]:53"} {
					if !s.exchange(s.client, to, bytes.Repeat([]byte{'?'}, large), 20) {
						t.Errorf("no answer of %s to %d bytes", to, large)
					}
				}
			})
		})
	}
}

// TestFragmentsDropped checks that a policy can drop fragments in three ways: with the switch, with a rule, and with checks of the strict profile.
func TestFragmentsDropped(t *testing.T) {
	inScene(t, func(s *scene) {
		s.echoUDP(s.server, 53)
		question := bytes.Repeat([]byte{'?'}, large)
		mark := "services: [{name: dns, port: udp/53}, {name: mark, port: udp/9}]\n"
		for _, target := range targets {
			for _, text := range []string{
				"default: drop\nessential: {fragments: off}\n" + mark,
				"default: drop\nrules: [{name: no, fragment: later, then: drop}]\n" + mark,
			} {
				text = "replies: " + map[bool]string{true: "drop", false: "pass"}[target == "iptables"] + "\n" + text // conntrack hides fragments from iptables
				s.apply(target, text)
				before := s.stack()
				s.send(200, s.frames("udp 10.0.0.9 > 10.0.0.2 frag=later", "udp fd00::9 > fd00::2 frag=later"))
				if came := s.settled(before).fragments; came > 0 {
					t.Errorf("%s: %d of 200 later fragments came to the stack under:\n%s", target, came, text)
				}
				if s.exchange(s.client, "10.1.0.2:53", question, 1) {
					t.Errorf("%s: a datagram in fragments was answered under:\n%s", target, text)
				}
			}
			s.apply(target, "default: drop\nreplies: drop\nchecks: strict\n"+mark)
			before := s.stack()
			s.send(200, s.frames("tcp 10.0.0.9 > 10.0.0.2 frag=8"))
			if came := s.settled(before).fragments; came > 0 {
				t.Errorf("%s: %d of 200 fragments that overwrite a TCP header came to the stack", target, came)
			}
		}
	})
}

// TestPing sends pings from the host and to the host, over IPv4 and IPv6, with and without `echo: on`. With `replies: pass` the host must get answers
// to its own pings in both cases.
func TestPing(t *testing.T) {
	inScene(t, func(s *scene) {
		id := uint16(0)
		for _, target := range targets {
			for _, echo := range []string{
				"", "essential: {echo: on}\n", "essential: {echo: {limit: 50/s}}\n", "essential: {echo: off}\n", "replies: drop\n", "replies: drop\nessential: {echo: on}\n",
			} {
				s.apply(target, "default: drop\nchecks: strict\n"+echo)
				open := strings.Contains(echo, "echo: on") || strings.Contains(echo, "limit")
				for to, from := range map[string]*lab.Host{
					"10.1.0.2": s.client, "fd01::2": s.client, "10.1.0.1": s.server, "fd01::1": s.server,
				} {
					want := open || from == s.server && !strings.HasPrefix(echo, "replies: drop")
					tries := map[bool]int{true: 20, false: 1}[want]
					id++
					if got := s.ping(from, to, id, tries); got != want {
						t.Errorf("%s: %q: %s answers a ping: %t, want %t", target, echo, to, got, want)
					}
				}
			}
		}
	})
}

// ping sends echo requests to an address, several times if needed. It reports whether an answer arrives.
func (s *scene) ping(from *lab.Host, to string, id uint16, tries int) bool {
	s.Helper()
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if netip.MustParseAddr(to).Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	var c net.Conn
	err := from.Do(func() (err error) {
		c, err = net.Dial(network, to)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	echo := []byte{request, 0, 0, 0, byte(id >> 8), byte(id), 0, 1}
	binary.BigEndian.PutUint16(echo[2:], ^sum16(echo, 0)) // for ICMPv6 the kernel sets the checksum
	for range tries {
		if _, err := c.Write(echo); err != nil {
			s.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(time.Second))
		for buf := make([]byte, 100); ; {
			n, _, err := c.(*net.IPConn).ReadFrom(buf) // Read would include the IPv4 header
			if err != nil {
				break
			}
			if n == len(echo) && buf[0] == reply {
				return true
			}
		}
	}
	return false
}
