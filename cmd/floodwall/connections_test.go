// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// connectionsPolicy limits TCP connections per source, UDP flows per network, and connections to one port per destination.
const connectionsPolicy = `devices: [fw0]
rules:
  - {name: crowd, port: [tcp/7, tcp/8], over: {connections: 20, per: from/32}, then: reject}
  - {name: networks, port: [udp/7, udp/9], over: {connections: 3, per: from/24/56}, then: drop}
  - {name: server, port: tcp/10, over: {connections: 2, per: to/32/128}, then: reject}
`

// TestConnections opens connections to a host that limits connections per prefix. It uses real TCP and UDP connections over IPv4 and IPv6, on each
// target.
func TestConnections(t *testing.T) {
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		t.Run(target, func(t *testing.T) {
			if !inside(t) {
				return
			}
			s := newCrowdSite(t)
			file := filepath.Join(t.TempDir(), "policy.yaml")
			writeFile(t, file, connectionsPolicy)
			mustFloodwall(t, "apply", file, "--force", "--target", target)
			for _, family := range crowdFamilies {
				s.perSource(t, family)
				s.perNetwork(t, family)
				s.perDestination(t, family)
				s.silent(t, family)
			}
			status := mustFloodwall(t, "status")
			for _, rule := range []string{"crowd", "networks", "server"} {
				if !strings.Contains(lineOf(status, rule), "filter") {
					t.Errorf("rule %s is not at filter:\n%s", rule, status)
				}
			}
			mustFloodwall(t, "unload")
		})
	}
}

func lineOf(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return ""
}

// crowdFamily has the addresses of one address family: host and other are addresses of the host, and first, near and far are clients. near is in the
// same network as first, and far is in another network. With from/32/64, each client counts separately.
type crowdFamily struct{ host, other, first, near, far string }

var crowdFamilies = []crowdFamily{
	{"192.0.2.1", "192.0.2.100", "192.0.2.2", "192.0.2.3", "198.51.100.2"},
	{"2001:db8::1", "2001:db8::100", "2001:db8::2", "2001:db8:0:1::2", "2001:db8:1::2"},
}

// crowdSite is a host with an echo server, and its clients.
type crowdSite struct {
	clients *testutil.Elsewhere
	heard   chan string // sources of datagrams to the port that does not answer
}

func newCrowdSite(t *testing.T) crowdSite {
	s := crowdSite{testutil.NewElsewhere(t), make(chan string, 1000)}
	script(t, "ip addr add 192.0.2.100/24 dev fw0; ip addr add 2001:db8::1/32 dev fw0 nodad; ip addr add 2001:db8::100/32 dev fw0 nodad; ip route add 198.51.100.0/24 dev fw0")
	s.clients.Take(t, "fw1")
	s.clients.Do(func() {
		script(t, "ip link set lo up; ip link set fw1 up; ip addr add 192.0.2.2/24 dev fw1; ip addr add 192.0.2.3/24 dev fw1; ip addr add 198.51.100.2/24 dev fw1\n"+
			"for a in ::2 :0:1::2 :1::2; do ip addr add 2001:db8$a/32 dev fw1 nodad; done")
	})
	testutil.WaitUp(t, "fw0")
	for _, port := range []int{7, 8, 10} {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		testutil.Serve(t, l, func(c net.Conn) { io.Copy(c, c) })
	}
	for _, family := range crowdFamilies {
		s.datagrams(t, net.JoinHostPort(family.host, "7"), func(c *net.UDPConn, from net.Addr, data []byte) { c.WriteTo(data, from) })
		s.datagrams(t, net.JoinHostPort(family.host, "9"), func(_ *net.UDPConn, from net.Addr, _ []byte) { s.heard <- from.String() })
	}
	return s
}

// datagrams listens on a UDP address and calls each with every datagram.
func (s crowdSite) datagrams(t *testing.T, address string, each func(c *net.UDPConn, from net.Addr, data []byte)) {
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		data := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(data)
			if err != nil {
				return
			}
			each(c.(*net.UDPConn), from, data[:n])
		}
	}()
}

// dial opens a connection to the host from an address of a client.
func (s crowdSite) dial(network, from, to, port string) (c net.Conn, err error) {
	s.clients.Do(func() {
		local, port := net.JoinHostPort(from, "0"), net.JoinHostPort(to, port)
		d := net.Dialer{Timeout: filteredAgain}
		if network == "udp" {
			d.LocalAddr, err = net.ResolveUDPAddr(network, local)
		} else {
			d.LocalAddr, err = net.ResolveTCPAddr(network, local)
		}
		if err == nil {
			c, err = d.Dial(network, port)
		}
	})
	return c, err
}

// opened opens n connections, which must all succeed. They stay open until the end of the test.
func (s crowdSite) opened(t *testing.T, n int, from, to, port string) (all []net.Conn) {
	t.Helper()
	for i := range n {
		c, err := s.dial("tcp", from, to, port)
		if err != nil {
			t.Fatalf("connection %d of %d from %s to %s, port %s: %v", i+1, n, from, to, port, err)
		}
		t.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	echoed(t, all)
	return all
}

// refused checks that the host refuses one more connection.
func (s crowdSite) refused(t *testing.T, from, to, port string) {
	t.Helper()
	c, err := s.dial("tcp", from, to, port)
	if err == nil {
		c.Close()
		t.Errorf("one connection too many from %s to %s, port %s, is there", from, to, port)
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("one connection too many from %s to %s, port %s: %v", from, to, port, err)
	}
}

// echoed checks that the echo server answers on each connection.
func echoed(t *testing.T, all []net.Conn) {
	t.Helper()
	for i, c := range all {
		c.SetDeadline(time.Now().Add(30 * time.Second))
		data := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Errorf("connection %d: %v", i+1, err)
		} else if _, err := io.ReadFull(c, data); err != nil {
			t.Errorf("connection %d is cut: %v", i+1, err)
		}
	}
}

// perSource opens as many connections of one client as a rule allows. The rule covers two ports. Other clients and the client's open connections must
// not be affected. When the client closes a connection, it must be able to open another.
func (s crowdSite) perSource(t *testing.T, f crowdFamily) {
	all := append(s.opened(t, 12, f.first, f.host, "7"), s.opened(t, 8, f.first, f.host, "8")...)
	for range 5 {
		s.refused(t, f.first, f.host, "7")
		s.refused(t, f.first, f.host, "8")
	}
	echoed(t, all)
	for _, other := range []string{f.near, f.far} {
		echoed(t, s.opened(t, 2, other, f.host, "7"))
	}
	all[0].Close()
	var again net.Conn
	if !testutil.Eventually(30*time.Second, func() bool {
		c, err := s.dial("tcp", f.first, f.host, "8")
		again = c
		return err == nil
	}) {
		t.Fatalf("%s closed a connection, and may not open one", f.first)
	}
	t.Cleanup(func() { again.Close() })
	s.refused(t, f.first, f.host, "8")
	echoed(t, append(all[1:], again))
	for _, c := range append(all[1:], again) {
		c.Close()
	}
}

// perNetwork opens as many UDP flows from two clients of a network as the rule allows for the network.
func (s crowdSite) perNetwork(t *testing.T, f crowdFamily) {
	var all []net.Conn
	for _, from := range []string{f.first, f.near, f.near, f.far} {
		all = append(all, s.flow(t, from, f.host, "7"))
		echoed(t, all)
	}
	for _, from := range []string{f.first, f.near} {
		c := s.flow(t, from, f.host, "7")
		c.Write([]byte("hello"))
		c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := c.Read(make([]byte, 5)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a flow too many from %s: %v", from, err)
		}
	}
	echoed(t, all)
}

func (s crowdSite) flow(t *testing.T, from, to, port string) net.Conn {
	t.Helper()
	c, err := s.dial("udp", from, to, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// perDestination opens as many connections to one address of the host as the rule allows, from several clients. Connections to another address must
// succeed.
func (s crowdSite) perDestination(t *testing.T, f crowdFamily) {
	all := append(s.opened(t, 1, f.first, f.host, "10"), s.opened(t, 1, f.far, f.host, "10")...)
	s.refused(t, f.near, f.host, "10")
	echoed(t, append(all, s.opened(t, 1, f.near, f.other, "10")...))
}

// silent sends datagrams that get no answer, so that their flows stay new in conntrack. At the same time, the limit refuses other flows. Datagrams of
// flows within the limit must still arrive. perNetwork still holds all three flows of the network of first. It holds only one flow of the network of
// far, so two more are within the limit.
func (s crowdSite) silent(t *testing.T, f crowdFamily) {
	within := []net.Conn{s.flow(t, f.far, f.host, "9"), s.flow(t, f.far, f.host, "9")}
	for round := range 20 {
		for _, c := range within {
			c.Write([]byte("x"))
			select {
			case <-s.heard:
			case <-time.After(30 * time.Second):
				t.Fatalf("round %d: a datagram of a flow within the limit is lost", round)
			}
		}
		s.flow(t, f.far, f.host, "9").Write([]byte("x"))
	}
	select {
	case from := <-s.heard:
		t.Errorf("a flow too many arrived, from %s", from)
	case <-time.After(200 * time.Millisecond):
	}
}
