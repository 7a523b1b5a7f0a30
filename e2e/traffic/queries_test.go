// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// longName is a name of 255 bytes in wire format, the maximum for a name. Its labels have at most 63 bytes.
var longName = strings.Repeat(strings.Repeat("x", 63)+".", 3) + strings.Repeat("y", 61)

// Parts of DNS messages in hex: the header of a query with one question, a name, and type A in class IN.
const (
	askOne  = "123401000001000000000000"
	example = "076578616d706c6503636f6d00"
	typeA   = "00010001"
)

// forms are queries of unverified clients in many forms. The first %d in a line is the network, the second is the port.
var forms = []struct {
	line   string
	passes bool // to the resolver
	cut    bool // gets a truncated answer
}{
	// Queries in a form that clients send. Such a query passes, or gets a truncated answer because of its type, whatever its other headers and fields
	// are.
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=A,example.com", passes: true},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 csum=0 dns=A,example.com", passes: true},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 ipopts=94040000 dns=A,example.com", passes: true},
	{line: "udp [2600:%d::9]:%d > [fd00::2]:53 dns=AAAA,example.com", passes: true},
	{line: "udp [2600:%d::9]:%d > [fd00::2]:53 ext=dst dns=A,example.com", passes: true},
	{line: "udp [2600:%d::9]:%d > [fd00::2]:53 ext=frag dns=A,example.com", passes: true},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=A," + longName, passes: true},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=A,example.com,edns:65535,do,cookie:0011223344556677", passes: true},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=252,example.com", passes: true}, // AXFR
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=251,example.com", passes: true}, // IXFR
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=ANY,example.com", cut: true},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 csum=0 dns=ANY,example.com", cut: true},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=TXT," + longName + ",edns:1232,do", cut: true},
	{line: "udp [2600:%d::9]:%d > [fd00::2]:53 dns=DNSKEY,example.com,edns:1232", cut: true},

	// Queries in a form that no client sends. Such a query neither passes nor gets an answer.
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=A,example.com frag=first"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=ANY,example.com frag=first"},
	{line: "udp [2600:%d::9]:%d > [fd00::2]:53 dns=ANY,example.com frag=first"},
	{line: "udp [2600:%d::9]:%d > [fd00::2]:53 csum=0 dns=ANY,example.com"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 udplen=30 dns=A,example.com"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 udplen=300 dns=A,example.com"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 udplen=0 dns=ANY,example.com"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 totlen=40 dns=ANY,example.com"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 totlen=400 dns=ANY,example.com"},
	{line: "udp [2600:%d::9]:%d > [fd00::2]:53 totlen=60 dns=ANY,example.com"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 payload=0x00"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 payload=0x" + askOne},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 payload=0x123401000000000000000000"},                                    // no question
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 payload=0x123401000002000000000000" + example + typeA + "c00c" + typeA}, // two questions
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 payload=0x12340100ffff000000000000" + example + typeA},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 payload=0x" + askOne + "c00c" + typeA}, // a name that points to itself
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 payload=0x" + askOne + "03777777c00c" + typeA},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 payload=0x" + askOne + example + typeA + "00"}, // a byte left over
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=ANY,example.com,class:3"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=ANY,example.com,response"},
	{line: "udp 203.%d.113.9:%d > 10.0.0.2:53 dns=ANY,example.com,opcode:5"},
}

// resolver opens a UDP socket for IPv4 and IPv6 on the server's port 53.
func (s *scene) resolver() (c net.PacketConn) {
	s.Helper()
	err := s.server.Do(func() (err error) {
		c, err = net.ListenPacket("udp", "[::]:53")
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// untilPort receives datagrams until one has the source port last. It returns the source ports of all received datagrams.
func (s *scene) untilPort(c net.PacketConn, last uint16) map[uint16]bool {
	s.Helper()
	came, buf := map[uint16]bool{}, make([]byte, 1<<16)
	c.SetReadDeadline(time.Now().Add(time.Minute))
	for !came[last] {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			s.Fatalf("no datagram from port %d: %v", last, err)
		}
		came[netip.MustParseAddrPort(from.String()).Port()] = true
	}
	return came
}

// TestFormsOfQueries sends queries in all forms to a guarded resolver. Each either reaches the resolver's socket, or gets a truncated answer, or is
// dropped.
func TestFormsOfQueries(t *testing.T) {
	inScene(t, func(s *scene) {
		e, c := s.eavesdrop(), s.resolver()
		s.apply(targets[0], "default: drop"+fmt.Sprintf(truncating, "standard"))
		for i, f := range forms {
			port := uint16(2048 + 3*i)
			// Two further queries follow: one certainly passes, and one certainly gets an answer. Each of the three is from another network.
			s.send(3, s.frames(
				fmt.Sprintf(f.line, i+1, port),
				fmt.Sprintf("udp 204.%d.113.9:%d > 10.0.0.2:53 dns=A,example.com", i, port+1),
				fmt.Sprintf("udp 205.%d.113.9:%d > 10.0.0.2:53 dns=ANY,example.com", i, port+2)))
			if got := s.untilPort(c, port+1)[port]; got != f.passes {
				t.Errorf("%s: passes is %t", f.line, got)
			}
			if got := e.until(port + 2)[port]; got != f.cut {
				t.Errorf("%s: answered is %t", f.line, got)
			}
		}
	})
}
