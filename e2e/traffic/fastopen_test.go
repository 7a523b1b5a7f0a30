// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// heardSegment is a TCP segment from the server.
type heardSegment struct {
	flags    uint32
	seq      uint32
	options  []byte
	dataSize int
}

func readSegment(frame []byte) heardSegment {
	ip := frame[14:]
	tcp, length := ip[20:], int(binary.BigEndian.Uint16(ip[2:]))-20
	if ip[0]>>4 == 6 {
		tcp, length = ip[40:], int(binary.BigEndian.Uint16(ip[4:]))
	}
	header := int(tcp[12]>>4) * 4
	return heardSegment{flags: uint32(tcp[13]), seq: binary.BigEndian.Uint32(tcp[4:]), options: tcp[20:header], dataSize: length - header}
}

// segment returns the next segment from the server's port 53 to an endpoint for which wanted returns true.
func (e *eavesdropper) segment(to netip.AddrPort, wanted func(heardSegment) bool) (found heardSegment) {
	e.Helper()
	e.hear(fmt.Sprintf("segment to %s", to), func(p *packet.Packet, frame []byte) bool {
		if p.Value[packet.SPort] != 53 || p.Value[packet.DPort] != uint32(to.Port()) || p.Dst != to.Addr() {
			return false
		}
		found = readSegment(frame)
		return wanted(found)
	})
	return found
}

// fastOpenCookie returns the Fast Open cookie in the options of a SYN-ACK (RFC 7413, 4.1.1). It is nil if there is none.
func (s heardSegment) fastOpenCookie() []byte {
	at := bytes.Index(s.options, []byte{34, 10})
	if at < 0 {
		return nil
	}
	return s.options[at+2 : at+10]
}

func isSYN(s heardSegment) bool   { return s.flags&2 != 0 }
func hasData(s heardSegment) bool { return s.flags&2 == 0 && s.dataSize > 0 }

// swallow makes the attacker's kernel discard packets to forged addresses. Otherwise the kernel would answer IPv6 packets with "no route".
func (s *scene) swallow() {
	s.Helper()
	err := s.attacker.Do(func() error {
		all := &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		return netlink.RouteAdd(&netlink.Route{Dst: all, Type: unix.RTN_BLACKHOLE})
	})
	if err != nil {
		s.Fatal(err)
	}
}

// answerSegments answers each data segment on a connection with one byte. It answers the text "end" with two bytes, and closes the connection. The
// second byte waits for the acknowledgment of the first (RFC 896), or for the close.
func answerSegments(c net.Conn) {
	c.(*net.TCPConn).SetNoDelay(false)
	for b := make([]byte, 100); ; {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		c.Write([]byte{'.'})
		if bytes.Contains(b[:n], []byte("end")) {
			c.Write([]byte{'!'})
			return
		}
	}
}

// TestFastOpenVerifiesNobody makes a resolver answer over TCP before the handshake is complete. With TCP Fast Open, a server does so for a client
// with a cookie. Such a cookie was sent to the client's address some time ago, and anybody may have stored it. So only a complete handshake may
// verify the client.
func TestFastOpenVerifiesNobody(t *testing.T) {
	inScene(t, func(s *scene) {
		const serverEnable, withoutOption = 2, 0x400 // Documentation/networking/ip-sysctl.rst
		if err := s.server.Sysctl("ipv4/tcp_fastopen", fmt.Sprint(serverEnable|withoutOption)); err != nil {
			t.Fatal(err)
		}
		l, err := s.server.Listen(netip.MustParseAddrPort("[::]:53"))
		if err != nil {
			t.Fatal(err)
		}
		testutil.Serve(t, l, answerSegments)
		s.swallow()
		e := s.eavesdrop()
		s.apply(targets[0], fmt.Sprintf(truncating, "standard"))
		port := uint16(1024)
		// wantTruncated checks whether a client's query gets a truncated answer. It then sends another query that certainly gets one.
		wantTruncated := func(when string, from, to netip.Addr, want bool) {
			t.Helper()
			port += 2
			s.send(1, s.frames(fmt.Sprintf("udp %s > %s dns=TXT,example.com", netip.AddrPortFrom(from, port), netip.AddrPortFrom(to, 53))))
			s.send(1, s.frames(fmt.Sprintf("udp 203.%d.113.9:%d > 10.0.0.2:53 dns=TXT,example.com", port&0xff, port+1)))
			if got := e.until(port + 1)[port]; got != want {
				t.Errorf("%s %s: truncated is %t", from, when, got)
			}
		}
		for _, c := range []struct{ from, to, question string }{
			{"198.51.100.7", "10.0.0.2", "one"}, {"198.51.101.7", "10.0.0.2", "end"}, {"2600::9", "fd00::2", "one"}, {"2600:1::9", "fd00::2", "end"},
		} {
			from, to := netip.MustParseAddr(c.from), netip.MustParseAddr(c.to)
			client := netip.AddrPortFrom(from, 4000)
			send := func(port uint16, rest string) {
				s.send(1, s.frames(fmt.Sprintf("tcp %s > %s %s", netip.AddrPortFrom(from, port), netip.AddrPortFrom(to, 53), rest)))
			}
			send(3999, "S seq=1000 tcpopts=020405b422020101")
			cookie := e.segment(netip.AddrPortFrom(from, 3999), isSYN).fastOpenCookie()
			if cookie == nil {
				t.Fatalf("%s gets no cookie", from)
			}
			send(4000, fmt.Sprintf("S seq=1000 tcpopts=020405b4220a%s payload=%q", hex.EncodeToString(cookie), c.question))
			first := e.segment(client, func(s heardSegment) bool { return hasData(s) && (c.question == "one" || s.flags&1 != 0) })
			wantTruncated("that has answered no SYN-ACK", from, to, true)
			if c.question == "one" {
				send(4000, fmt.Sprintf(". seq=1004 ack=%d payload=\"one\"", first.seq+1))
				e.segment(client, hasData)
				wantTruncated("that was answered after the handshake", from, to, false)
			}
		}
	})
}
