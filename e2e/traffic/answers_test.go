// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// truncating is a policy whose guard answers each query of type ANY with a truncated answer (TC). The policy's rules decide about all other packets.
const truncating = `
checks: %s
services: [{name: dns, port: [udp/53, tcp/53], guard: dns, track: false}]
`

// query is a DNS query, a change to its frame, and whether it must be answered.
type query struct {
	line     string // the description after "udp"; %d is the source port
	frame    func([]byte)
	answered bool
}

// forAnother changes the destination of a frame to the Ethernet address of another host.
func forAnother(f []byte) { f[5] ^= 0x55 }
func toGroup(f []byte)    { copy(f, []byte{0x01, 0, 0x5e, 0, 0, 5}) }
func toAll(f []byte)      { copy(f, []byte{255, 255, 255, 255, 255, 255}) }
func fromGroup(f []byte)  { copy(f[6:], []byte{0x01, 0, 0x5e, 0, 0, 5}) }
func fromAll(f []byte)    { copy(f[6:], []byte{255, 255, 255, 255, 255, 255}) }

// queries has queries of clients, which must be answered, and queries that no host would answer.
var queries = []query{
	{line: "198.51.100.7:%d > 10.0.0.2:53", answered: true},
	{line: "[2600::9]:%d > [fd00::2]:53", answered: true},
	{line: "240.0.0.1:%d > 10.0.0.2:53", answered: true},
	{line: "10.1.0.1:%d > 10.1.0.2:53", answered: true},
	{line: "10.0.0.254:%d > 10.0.0.2:53", answered: true},
	{line: "10.16.0.2:%d > 10.0.0.2:53", answered: true},
	{line: "198.51.100.7:%d > 10.9.9.9:53", answered: true}, // a resolver behind this host
	{line: "[fe80::99]:%d > [fe80::2]:53", answered: true},

	{line: "198.51.100.7:%d > 10.0.0.2:53", frame: forAnother},
	{line: "198.51.100.7:%d > 10.0.0.2:53", frame: toGroup},
	{line: "198.51.100.7:%d > 10.0.0.2:53", frame: toAll},
	{line: "198.51.100.7:%d > 10.0.0.2:53", frame: fromGroup},
	{line: "198.51.100.7:%d > 10.0.0.2:53", frame: fromAll},
	{line: "[2600::9]:%d > [fd00::2]:53", frame: forAnother},
	{line: "[2600::9]:%d > [fd00::2]:53", frame: fromGroup},

	{line: "10.0.0.2:%d > 10.0.0.2:53"}, // own addresses
	{line: "10.1.0.2:%d > 10.0.0.2:53"},
	{line: "[fd01::2]:%d > [fd00::2]:53"},
	{line: "127.0.0.1:%d > 10.0.0.2:53"}, // addresses that no host has
	{line: "0.0.0.0:%d > 10.0.0.2:53"},
	{line: "0.1.2.3:%d > 10.0.0.2:53"},
	{line: "224.0.0.1:%d > 10.0.0.2:53"},
	{line: "255.255.255.255:%d > 10.0.0.2:53"},
	{line: "10.0.0.255:%d > 10.0.0.2:53"},
	{line: "[::]:%d > [fd00::2]:53"},
	{line: "[::1]:%d > [fd00::2]:53"},
	{line: "[ff02::1]:%d > [fd00::2]:53"},
	{line: "198.51.100.7:%d > 10.0.0.255:53"}, // not to a single host
	{line: "198.51.100.7:%d > 224.0.0.5:53"},
	{line: "198.51.100.7:%d > 255.255.255.255:53"},
	{line: "198.51.100.7:%d > 127.0.0.1:53"},
	{line: "198.51.100.7:%d > 0.0.0.0:53"},
	{line: "[2600::9]:%d > [ff02::1]:53"},
	{line: "[2600::9]:%d > [::1]:53"},
}

// TestTruncatedAnswers sends three kinds of queries: valid ones, queries that are not for this host or a host behind it, and queries from addresses
// that no host has. XDP must answer only the valid ones.
func TestTruncatedAnswers(t *testing.T) {
	inScene(t, func(s *scene) {
		e := s.eavesdrop()
		for _, checks := range []string{"off", "standard"} {
			s.apply(targets[0], fmt.Sprintf(truncating, checks))
			for i, q := range queries {
				if checks != "off" && !q.answered {
					continue // the checks drop some of these
				}
				port := uint16(1024 + 2*i)
				frame := s.frames(fmt.Sprintf("udp "+q.line+" dns=ANY,example.com", port))[0]
				if q.frame != nil {
					q.frame(frame)
				}
				s.send(1, [][]byte{frame})
				// Then the test sends a query that is certainly answered. Its source is in another network each time, because of limits.
				s.send(1, s.frames(fmt.Sprintf("udp 203.%d.113.9:%d > 10.0.0.2:53 dns=ANY,example.com", i, port+1)))
				if got := e.until(port + 1)[port]; got != q.answered {
					t.Errorf("checks: %s: %s, frame %x: answered %t, want %t", checks, fmt.Sprintf(q.line, port), frame[:12], got, q.answered)
				}
			}
		}
	})
}

// TestNoLoopOfAnswers sends messages from port 53 that are not queries: answers, and messages with other opcodes. With such messages an attacker
// could make two resolvers answer each other. The guard must answer none of them, and pass none to the resolver, which might answer. If the guard's
// own answer is sent back to it, the guard must not answer either.
func TestNoLoopOfAnswers(t *testing.T) {
	inScene(t, func(s *scene) {
		e := s.eavesdrop()
		s.apply(targets[0], fmt.Sprintf(truncating, "off"))
		messages := []string{"dns=ANY,example.com,response", "dns=ANY,example.com,edns:4096,response"}
		for opcode := 1; opcode < 16; opcode++ {
			messages = append(messages, fmt.Sprintf("dns=ANY,example.com,opcode:%d", opcode))
		}
		for i, m := range messages {
			for _, ends := range []string{"198.51.100.7:53 > 10.0.0.2:53", "[2600::9]:53 > [fd00::2]:53"} {
				s.send(1, s.frames("udp "+ends+" "+m))
			}
			s.send(1, s.frames(fmt.Sprintf("udp 203.%d.113.9:%d > 10.0.0.2:53 dns=ANY,example.com", i, 1024+i)))
			if e.until(uint16(1024 + i))[53] {
				t.Errorf("%s: answered", m)
			}
		}
		s.send(1, s.frames("udp 198.51.100.7:53 > 10.0.0.2:53 dns=ANY,example.com"))
		e.hear("answer to port 53", func(p *packet.Packet, frame []byte) bool {
			if p.Value[packet.SPort] != packet.PortUDP+53 || p.Value[packet.DPort] != packet.PortUDP+53 {
				return false
			}
			copy(frame, s.mac())
			s.send(1, [][]byte{frame}) // from the server's own address
			copy(frame[14+12:], []byte{198, 51, 100, 7, 10, 0, 0, 2})
			s.send(1, [][]byte{frame})
			return true
		})
		s.send(1, s.frames("udp 203.0.113.99:2048 > 10.0.0.2:53 dns=ANY,example.com"))
		if e.until(2048)[53] {
			t.Error("an answer is answered")
		}
		responses, others := uint64(0), uint64(0)
		testutil.Eventually(patience, func() bool { // packets of another queue may wait for a CPU
			responses, others = s.counted("dns:response"), s.counted("dns:other")
			return responses >= 2*2+2 && others >= 2*15
		})
		if responses != 2*2+2 || others != 2*15 {
			t.Errorf("%d are dropped as responses and %d as others, want 6 and 30", responses, others)
		}
	})
}

// eavesdropper receives the packets that the server sends on the attacker's link.
type eavesdropper struct {
	*scene
	socket int
}

func (s *scene) eavesdrop() *eavesdropper {
	s.Helper()
	e := &eavesdropper{scene: s}
	err := s.attacker.Do(func() (err error) {
		dev, err := netlink.LinkByName("server")
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
		// A veth without a program accepts frames that XDP_TX sends at the other end, but does not wake the reader of its socket.
		detach, err := testutil.AttachForeign("server")
		if err != nil {
			return err
		}
		s.Cleanup(func() { detach() })
		if e.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		s.Cleanup(func() { unix.Close(e.socket) })
		wait := unix.NsecToTimeval(int64(100 * time.Millisecond))
		if err := unix.SetsockoptTimeval(e.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			return err
		}
		return unix.Bind(e.socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Attrs().Index})
	})
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// until reads answers from port 53 until the answer to the port last. It returns the ports that got answers.
func (e *eavesdropper) until(last uint16) map[uint16]bool {
	e.Helper()
	heard := map[uint16]bool{}
	e.hear(fmt.Sprintf("answer to port %d", last), func(p *packet.Packet, _ []byte) bool {
		if p.Value[packet.SPort] == packet.PortUDP+53 && p.Value[packet.DNS] == packet.DNSResponse {
			heard[uint16(p.Value[packet.DPort]-packet.PortUDP)] = true
		}
		return heard[last]
	})
	return heard
}

// hear reads frames until is() returns true for a frame. The parameter what names this frame in the error message.
func (e *eavesdropper) hear(what string, is func(p *packet.Packet, frame []byte) bool) {
	e.Helper()
	buffer := make([]byte, 1<<16)
	for end := time.Now().Add(time.Minute); ; {
		if time.Now().After(end) {
			e.Fatalf("no %s", what)
		}
		n, from, err := unix.Recvfrom(e.socket, buffer, 0)
		if err != nil {
			continue
		}
		if at, ok := from.(*unix.SockaddrLinklayer); !ok || at.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if p := packet.Decode(buffer[:n]); is(&p, buffer[:n]) {
			return
		}
	}
}
