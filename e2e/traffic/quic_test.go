// SPDX-License-Identifier: Apache-2.0

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

// udpOn opens a UDP socket on a host.
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

// anyPort returns the local address for a client's socket that sends to the server's address to. The port is 0.
func anyPort(to string) string {
	if netip.MustParseAddrPort(to).Addr().Is4() {
		return "10.1.0.1:0"
	}
	return "[fd01::1]:0"
}

// quicServer starts a QUIC server that returns the data of each stream. Its connection IDs have idLength bytes.
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

// rebound is a client's socket that can be replaced by another one. That simulates a NAT gateway that forgets the client's port.
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

// ReadFrom reads from the first socket until rebind has set another one, and then from that one.
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

// rebind replaces the socket by c.
func (r *rebound) rebind(c *net.UDPConn) {
	r.mu.Lock()
	r.next = c
	r.mu.Unlock()
	r.PacketConn.Close()
}

// quicClient is a QUIC connection of a client.
type quicClient struct {
	socket *rebound
	begin  func(context.Context) (io.ReadWriter, func() error, error) // opens a stream; the function closes this side of it
}

var trusting = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"echo"}, MinVersion: tls.VersionTLS13}

// connected makes a client connect from any port. It fails the test if the client cannot connect.
func (s *scene) connected(client func(from, to string) (*quicClient, error), to string) *quicClient {
	s.Helper()
	c, err := client(anyPort(to), to)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// changing connects a client of quic-go. This client uses a new connection ID as soon as the service offers one.
func (s *scene) changing(from, to string) (*quicClient, error) {
	socket := &rebound{PacketConn: s.udpOn(s.client, from)}
	tr := &quic.Transport{Conn: socket}
	s.Cleanup(func() { tr.Close() })
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	c, err := tr.Dial(ctx, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)), trusting, &quic.Config{HandshakeIdleTimeout: 20 * time.Second})
	if err != nil {
		return nil, err
	}
	return &quicClient{socket, func(ctx context.Context) (io.ReadWriter, func() error, error) {
		stream, err := c.OpenStreamSync(ctx)
		if err == nil {
			stopAt, _ := ctx.Deadline()
			stream.SetDeadline(stopAt)
		}
		return stream, stream.Close, err
	}}, nil
}

// staying connects a client of golang.org/x/net. This client keeps the first connection ID that the service has chosen for it.
func (s *scene) staying(from, to string) (*quicClient, error) {
	socket := &rebound{PacketConn: s.udpOn(s.client, from)}
	e, err := netquic.NewEndpoint(socket, nil)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { e.Close(s.ctx) })
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	c, err := e.Dial(ctx, "udp", to, &netquic.Config{TLSConfig: trusting})
	if err != nil {
		return nil, err
	}
	return &quicClient{socket, func(ctx context.Context) (io.ReadWriter, func() error, error) {
		stream, err := c.NewStream(ctx)
		if err == nil {
			stream.SetReadContext(ctx)
			stream.SetWriteContext(ctx)
		}
		return stream, func() error { stream.CloseWrite(); return stream.Flush() }, err
	}}, nil
}

// asks sends n streams, one after the other. It returns the number of streams that were returned in time.
func (c *quicClient) asks(ctx context.Context, n int) (answered int) {
	for i := range n {
		if c.ask(ctx, fmt.Sprintf("question %d", i)) {
			answered++
		}
		time.Sleep(20 * time.Millisecond)
	}
	return answered
}

// ask sends a stream, and reports whether its data is returned. It waits for a long time, because a busy machine may stop for seconds. A client whose
// packets are dropped never gets an answer.
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

// TestQUICFlood uses QUIC connections during a flood of forged packets with short and long headers. For new clients that keep the connection ID, all
// streams must be returned, even if a client continues from another port, as after a NAT gateway has forgotten its port. For clients that change the
// connection ID, the same must hold if the service has answered them for a while.
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
		changing = append(changing, s.connected(s.changing, server[i%2]))
	}
	for range int((ir.KnownTimes + 1) * ir.KnownUnit / time.Second) {
		s.allCome("before", changing, 1)
		time.Sleep(time.Second)
	}
	for i := range each {
		staying = append(staying, s.connected(s.staying, server[i%2]))
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

// allCome makes all clients send n streams each, at the same time. All streams must be returned.
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
