package traffic

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	netquic "golang.org/x/net/quic"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/ir"
)

const quicPolicy = `
default: drop
checks: strict
services: [{name: web, port: udp/443, udp: {protect: quic, start: 500/s, limit: {rate: 20/s, per: from/24/56}, total: 50/s}}]
`

// udpOn opens a socket on a host.
func (s *scene) udpOn(h *lab.Host, at string) *net.UDPConn {
	s.Helper()
	var c *net.UDPConn
	err := h.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// anyPort is where a socket of the client listens that is to send to an address of the server.
func anyPort(to string) string {
	if netip.MustParseAddrPort(to).Addr().Is4() {
		return "10.1.0.1:0"
	}
	return "[fd01::1]:0"
}

// quicServer answers each stream with what it has got, with connection IDs of a length.
func (s *scene) quicServer(idLength int) {
	s.Helper()
	seed := make([]byte, ed25519.SeedSize)
	key := ed25519.NewKeyFromSeed(seed)
	self := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"web.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, self, self, key.Public(), key)
	if err != nil {
		s.Fatal(err)
	}
	tr := &quic.Transport{Conn: s.udpOn(s.server, "[::]:443"), ConnectionIDLength: idLength}
	certificate := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	l, err := tr.Listen(&tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { tr.Close() })
	go func() {
		for {
			c, err := l.Accept(s.ctx)
			if err != nil {
				return
			}
			go func() {
				for {
					stream, err := c.AcceptStream(s.ctx)
					if err != nil {
						return
					}
					go func() {
						io.Copy(stream, stream)
						stream.Close()
					}()
				}
			}()
		}
	}()
}

// rebound is a client's socket that may become another, as behind a gateway that forgets.
type rebound struct {
	net.PacketConn
	mu   sync.Mutex
	next *net.UDPConn
}

func (r *rebound) WriteTo(b []byte, to net.Addr) (int, error) {
	r.mu.Lock()
	c := r.next
	r.mu.Unlock()
	if c != nil {
		return c.WriteTo(b, to)
	}
	return r.PacketConn.WriteTo(b, to)
}

// ReadFrom reads from the first socket until there is another.
func (r *rebound) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		r.mu.Lock()
		c := r.next
		r.mu.Unlock()
		if c != nil {
			return c.ReadFrom(b)
		}
		n, from, err := r.PacketConn.ReadFrom(b)
		if err == nil {
			return n, from, nil
		}
		r.mu.Lock()
		ended := r.next == nil
		r.mu.Unlock()
		if ended {
			return n, from, err
		}
	}
}

// rebind goes on with another socket.
func (r *rebound) rebind(c *net.UDPConn) {
	r.mu.Lock()
	r.next = c
	r.mu.Unlock()
	r.PacketConn.Close()
}

// quicClient is a connection, which may begin streams.
type quicClient struct {
	socket *rebound
	begin  func(context.Context) (io.ReadWriter, func() error, error) // a stream, and what ends this side of it
}

var trusting = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"echo"}, MinVersion: tls.VersionTLS13}

// changing connects a client of quic-go, which takes a new connection ID as soon as the service offers one.
func (s *scene) changing(to string) *quicClient {
	s.Helper()
	socket := &rebound{PacketConn: s.udpOn(s.client, anyPort(to))}
	tr := &quic.Transport{Conn: socket}
	s.Cleanup(func() { tr.Close() })
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	c, err := tr.Dial(ctx, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)), trusting, nil)
	if err != nil {
		s.Fatal(err)
	}
	return &quicClient{socket, func(ctx context.Context) (io.ReadWriter, func() error, error) {
		stream, err := c.OpenStreamSync(ctx)
		if err == nil {
			stopAt, _ := ctx.Deadline()
			stream.SetDeadline(stopAt)
		}
		return stream, stream.Close, err
	}}
}

// staying connects a client of golang.org/x/net, which keeps the connection ID that the service has told it first.
func (s *scene) staying(to string) *quicClient {
	s.Helper()
	socket := &rebound{PacketConn: s.udpOn(s.client, anyPort(to))}
	e, err := netquic.NewEndpoint(socket, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { e.Close(s.ctx) })
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	c, err := e.Dial(ctx, "udp", to, &netquic.Config{TLSConfig: trusting})
	if err != nil {
		s.Fatal(err)
	}
	return &quicClient{socket, func(ctx context.Context) (io.ReadWriter, func() error, error) {
		stream, err := c.NewStream(ctx)
		if err == nil {
			stream.SetReadContext(ctx)
			stream.SetWriteContext(ctx)
		}
		return stream, func() error { stream.CloseWrite(); return stream.Flush() }, err
	}}
}

// asks sends so many streams, one after the other, and returns how many come back within four seconds.
func (c *quicClient) asks(ctx context.Context, n int) (answered int) {
	for i := range n {
		if c.ask(ctx, fmt.Sprintf("question %d", i)) {
			answered++
		}
		time.Sleep(20 * time.Millisecond)
	}
	return answered
}

// ask has a stream brought back. A client that is shut out gets no answer in any time, and a busy machine may stand still for seconds.
func (c *quicClient) ask(ctx context.Context, text string) bool {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	stream, end, err := c.begin(ctx)
	if err != nil {
		return false
	}
	io.WriteString(stream, text)
	end()
	got, err := io.ReadAll(stream)
	return err == nil && string(got) == text
}

// TestQUICFlood has connections of QUIC beside a flood of forged packets with short and long headers. All streams come back of clients that keep the
// connection ID, who are new, and also when they go on from another port, as behind a gateway that forgets them. So they do of clients that change it,
// whom the service has answered for a while.
func TestQUICFlood(t *testing.T) {
	t.Parallel()
	for _, idLength := range []int{4, 8, 20} {
		t.Run(fmt.Sprint(idLength), func(t *testing.T) {
			t.Parallel()
			inScene(t, func(s *scene) { s.quicFlood(idLength) })
		})
	}
}

func (s *scene) quicFlood(idLength int) {
	const each = 10
	s.apply(plan.TargetXDP, quicPolicy)
	s.quicServer(idLength)
	var changing, staying []*quicClient
	server := []string{"10.1.0.2:443", "[fd01::2]:443"}
	for i := range each {
		changing = append(changing, s.changing(server[i%2]))
	}
	for range int((ir.KnownTimes + 1) * ir.KnownUnit / time.Second) {
		s.allCome("before", changing, 1)
		time.Sleep(time.Second)
	}
	for i := range each {
		staying = append(staying, s.staying(server[i%2]))
	}
	s.allCome("without a flood", staying, 3)
	if n := s.counted("web:total") + s.counted("web:stray") + s.counted("web:limit"); n > 0 {
		s.Fatalf("without a flood %d packets are dropped", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var forged []string
	for i := range 3000 {
		from := fmt.Sprintf("udp %d.%d.%d.%d:%d > 10.0.0.2:443", 20+r.IntN(100), r.IntN(256), r.IntN(256), r.IntN(256), 1024+r.IntN(60000))
		switch i % 3 {
		case 0:
			forged = append(forged, fmt.Sprintf("%s len=1228 payload=0xc00000000108%016x08%016x", from, r.Uint64(), r.Uint64()))
		case 1:
			forged = append(forged, fmt.Sprintf("%s len=200 payload=0xe00000000108%016x08%016x", from, r.Uint64(), r.Uint64()))
		default:
			forged = append(forged, fmt.Sprintf("%s payload=0x40%016x%016x%016x", from, r.Uint64(), r.Uint64(), r.Uint64()))
		}
	}
	began := time.Now()
	defer func() { s.boundedFlood("web", began) }()
	s.besideFlood(forged, "web:total", func() {
		s.allCome("of a client that stays, beside a flood", staying, 20)
		s.allCome("of a client that changes, beside a flood", changing, 20)
		proved := s.counted("web:proved")
		for i, c := range staying {
			c.socket.rebind(s.udpOn(s.client, anyPort(server[i%2])))
		}
		s.allCome("from another port", staying, 10)
		if n := s.counted("web:proved") - proved; n < each {
			s.Errorf("of packets of %d clients from other ports %d are counted as proved", each, n)
		}
	})
}

// allCome has clients ask at the same time. Each must get all answers.
func (s *scene) allCome(which string, clients []*quicClient, n int) {
	s.Helper()
	var wait sync.WaitGroup
	for i, c := range clients {
		wait.Go(func() {
			if got := c.asks(s.ctx, n); got != n {
				s.Errorf("%s: of %d streams of connection %d %d come back", which, n, i, got)
			}
		})
	}
	wait.Wait()
}
