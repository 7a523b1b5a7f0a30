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

// talks are flows that the server began: a connection, and a socket of UDP that asks one peer and would take datagrams of anybody.
type talks struct {
	tcp net.Conn
	udp net.PacketConn
	to  net.Addr
}

// openPort is the server's port of UDP from which something has left, which attackers know.
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

// exchange has both flows carry something both ways.
func (t *talks) exchange() error {
	buf := make([]byte, 100)
	t.tcp.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := t.tcp.Write([]byte("question")); err != nil {
		return err
	}
	if _, err := io.ReadFull(t.tcp, buf[:8]); err != nil {
		return fmt.Errorf("TCP: %w", err)
	}
	for try := range 5 {
		t.udp.WriteTo([]byte("question"), t.to)
		t.udp.SetReadDeadline(time.Now().Add(time.Second))
		n, from, err := t.udp.ReadFrom(buf)
		if err == nil && (from.String() != t.to.String() || n != 8) {
			return fmt.Errorf("UDP: %d bytes of %v", n, from)
		}
		if err == nil {
			return nil
		}
		if try == 4 {
			return fmt.Errorf("UDP: %w", err)
		}
	}
	return nil
}

// forgedReplies are packets that pretend to answer the server, by an attacker who knows the peer and a port of each flow, but not both ends
// of one.
func (s *scene) forgedReplies(r *rand.Rand, tcpPort uint16, n int) [][]byte {
	lines := make([]string, n)
	for i := range lines {
		from, sport := fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(9), r.IntN(256), r.IntN(256), r.IntN(256)), []uint16{53, 123, 443, 7001, 7777}[r.IntN(5)]
		if r.IntN(3) == 0 { // the peer's address, and another port of it
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

// TestForgedReplies floods a server that drops by default with what pretends to answer it, beside flows that it began. None of it comes to the
// stack, and the flows go on, also while it comes.
func TestForgedReplies(t *testing.T) {
	forgeReplies(t, testutil.Scaled(100_000, 1_000_000))
}

// forgeReplies sends so many beside the flows, on each target.
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
		came := uint64(0) // the stack takes them when the CPU that polls the device comes to it
		if !testutil.Eventually(10*time.Second, func() bool { came = s.segments(s.server) - before; return came >= 40 }) {
			t.Fatalf("without a policy only %d segments came to the stack", came)
		}
		for _, target := range targets {
			s.apply(target, "default: drop\nservices: [{name: mark, port: udp/9}]\n")
			s.forged(t, string(target), r, flood)
		}
	})
}

// forged sends forged replies, at first alone, so that whatever comes to the stack is one.
func (s *scene) forged(t *testing.T, target string, r *rand.Rand, flood int) {
	talks := s.talk()
	defer talks.close()
	if err := talks.exchange(); err != nil {
		t.Fatalf("%s: before the flood: %v", target, err)
	}
	time.Sleep(100 * time.Millisecond) // acknowledgments
	frames := s.forgedReplies(r, uint16(talks.tcp.LocalAddr().(*net.TCPAddr).Port), flood/5)
	segments := s.segments(s.server)
	s.send(len(frames), frames)
	talks.udp.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, from, err := talks.udp.ReadFrom(make([]byte, 2000)); err == nil {
		t.Errorf("%s: the socket has received %d bytes of %v", target, n, from)
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

// segments is how many segments of TCP have come to the stack of a host.
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
