// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// talks are flows that the server opened: a TCP connection, and a flow of a UDP socket. The socket sends to one peer, but would accept datagrams from
// any sender.
type talks struct {
	tcp net.Conn
	udp net.PacketConn
	to  net.Addr
}

// openPort is the UDP port from which the server has sent. Attackers know this port.
const openPort = 40000

func (s *scene) talk() *talks {
	s.Helper()
	c, err := s.server.Dial(s.ctx, "tcp", netip.MustParseAddrPort("10.1.0.1:7001"))
	if err != nil {
		s.Fatal(err)
	}
	t := &talks{tcp: c, to: net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.1.0.1:7777"))}
	err = s.server.Do(func() (err error) {
		t.udp, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", openPort))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return t
}

func (t *talks) close() {
	t.tcp.Close()
	t.udp.Close()
}

// exchange sends data in both directions on both flows.
func (t *talks) exchange() error {
	buf := make([]byte, 100)
	t.tcp.SetDeadline(time.Now().Add(patience))
	if _, err := t.tcp.Write([]byte("question")); err != nil {
		return err
	}
	if _, err := io.ReadFull(t.tcp, buf[:8]); err != nil {
		return fmt.Errorf("TCP: %w", err)
	}
	const tries = 30
	for try := range tries {
		t.udp.WriteTo([]byte("question"), t.to)
		t.udp.SetReadDeadline(time.Now().Add(time.Second))
		n, from, err := t.udp.ReadFrom(buf)
		if err == nil && (from.String() != t.to.String() || n != 8) {
			return fmt.Errorf("UDP: %d bytes of %v", n, from)
		}
		if err == nil {
			return nil
		}
		if try == tries-1 {
			return fmt.Errorf("UDP: %w", err)
		}
	}
	return nil
}

// forgedReplies returns packets that imitate answers to the server. The attacker knows the peer and one port of each flow, but not the ports of both
// ends.
func (s *scene) forgedReplies(r *rand.Rand, tcpPort uint16, n int) [][]byte {
	lines := make([]string, n)
	for i := range lines {
		from, sport := fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(9), r.IntN(256), r.IntN(256), r.IntN(256)), []uint16{53, 123, 443, 7001, 7777}[r.IntN(5)]
		if r.IntN(3) == 0 { // the peer's address, with another port
			from, sport = "10.1.0.1", uint16(8000+r.IntN(50_000))
		}
		port := uint16(1024 + r.IntN(60_000))
		switch r.IntN(3) {
		case 0:
			port = openPort
		case 1:
			port = tcpPort
		}
		if i%2 == 0 {
			lines[i] = fmt.Sprintf("udp %s:%d > 10.0.0.2:%d len=100", from, sport, port)
			continue
		}
		lines[i] = fmt.Sprintf("tcp %s:%d > 10.0.0.2:%d %s", from, sport, port, []string{"SA", "A", "R", "PA", "RA", "FA"}[r.IntN(6)])
	}
	return s.frames(lines...)
}

// TestForgedReplies floods a server that drops by default with forged replies. The server has opened flows before. No packet of the flood may reach
// the stack, and the flows must continue during the flood.
func TestForgedReplies(t *testing.T) {
	forgeReplies(t, testutil.Scaled(100_000, 1_000_000))
}

// forgeReplies runs TestForgedReplies on each target, with the given number of forged replies.
func forgeReplies(t *testing.T, flood int) {
	inScene(t, func(s *scene) {
		r := rand.New(rand.NewPCG(5, 6))
		s.echoUDP(s.client, 7777)
		l, err := s.client.Listen(netip.MustParseAddrPort("10.1.0.1:7001"))
		if err != nil {
			t.Fatal(err)
		}
		testutil.Serve(t, l, func(c net.Conn) { io.Copy(c, c) })
		s.apply(targets[0], "default: pass")
		before, open := s.segments(s.server), s.forgedReplies(r, 7001, 100)
		s.send(len(open), open)
		came := uint64(0) // the stack receives them only when the CPU that polls the device gets to them
		if !testutil.Eventually(patience, func() bool { came = s.segments(s.server) - before; return came >= 40 }) {
			t.Fatalf("without a policy only %d segments came to the stack", came)
		}
		for _, target := range targets {
			s.apply(target, "default: drop\nservices: [{name: mark, port: udp/9}]\n")
			s.forged(t, string(target), r, flood)
		}
	})
}

// forged first sends only forged replies, so that any packet that reaches the stack is one of them. Then it sends forged replies while the flows
// exchange data.
func (s *scene) forged(t *testing.T, target string, r *rand.Rand, flood int) {
	talks := s.talk()
	defer talks.close()
	if err := talks.exchange(); err != nil {
		t.Fatalf("%s: before the flood: %v", target, err)
	}
	frames := s.forgedReplies(r, uint16(talks.tcp.LocalAddr().(*net.TCPAddr).Port), flood/5)
	segments := s.segments(s.server)
	testutil.Eventually(patience, func() bool { // the last acknowledgments may still follow, and on a busy machine segments that were sent again
		before := segments
		time.Sleep(300 * time.Millisecond)
		segments = s.segments(s.server)
		return segments == before
	})
	s.send(len(frames), frames)
	if got, from, ok := testutil.Receive(t, talks.udp.(*net.UDPConn), 100*time.Millisecond); ok {
		t.Errorf("%s: the socket has received %d bytes of %v", target, len(got), from)
	}
	if came := s.segments(s.server) - segments; came > 0 {
		t.Errorf("%s: %d segments of %d packets came to the stack", target, came, len(frames))
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.send(flood, frames)
	}()
	exchanges := 0
	for done := false; !done; exchanges++ {
		select {
		case <-sent:
			done = true
		default:
		}
		if err := talks.exchange(); err != nil {
			t.Fatalf("%s: exchange %d beside the flood: %v", target, exchanges, err)
		}
	}
	t.Logf("%s: %d exchanges beside the flood", target, exchanges)
}

// segments returns the number of TCP segments that a host's stack has received.
func (s *scene) segments(h *lab.Host) (n uint64) {
	s.Helper()
	err := h.Do(func() error {
		v4, err := counters("/proc/thread-self/net/snmp")
		n = v4["Tcp:InSegs"]
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return n
}
