// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/floodwall/floodwall/internal/lab"
)

// edge is a rare but possible behavior of a peer.
type edge struct {
	name string
	do   func(p *peer, echo *echo)
}

var edges = []edge{
	{"SYN with data and a request for a Fast Open cookie", func(p *peer, _ *echo) {
		const fastOpen = 34 // RFC 7413
		p.knock("early", option(fastOpen))
		p.say("early")
	}},
	{"SYN without options", func(p *peer, _ *echo) {
		p.send(segment{flags: "S"})
		got := p.want("SYN-ACK", func(g *layers.TCP) bool { return g.SYN && g.ACK })
		if len(got.Options) > 0 {
			p.Errorf("it offers %v", got.Options)
		}
		p.seq, p.ack = p.seq+1, got.Seq+1
		p.send(segment{flags: "."})
		p.awaitWindow()
		p.say("plain")
	}},
	{"SYN twice", func(p *peer, _ *echo) {
		p.send(segment{flags: "S", options: p.synOptions()})
		p.want("SYN-ACK", func(g *layers.TCP) bool { return g.SYN && g.ACK })
		p.connect()
		p.say("twice")
	}},
	{"the handshake's ACK is lost", func(p *peer, _ *echo) {
		p.knock("")
		if p.mode == "router" { // the peer can only probe the window, until the SYN-ACK comes again
			p.send(segment{flags: ".", options: p.stamps(), before: 1})
			p.want("SYN-ACK", func(g *layers.TCP) bool { return g.SYN && g.ACK && g.Ack == p.seq && g.Seq == p.ack-1 })
			p.send(segment{flags: ".", options: p.stamps()})
			p.awaitWindow()
		}
		p.say("first")
	}},
	{"reset for the SYN-ACK", func(p *peer, e *echo) {
		p.knock("")
		before := e.accepted.Load()
		p.send(segment{flags: "R"})
		p.wantSilence("the reset")
		if e.accepted.Load() != before {
			p.Error("a connection comes of it")
		}
		p.seq += 100_000
		p.connect()
		p.say("anew")
	}},
	{"probe of a window", func(p *peer, _ *echo) {
		p.connect()
		p.say("before")
		p.send(segment{flags: ".", options: p.stamps(), before: 1})
		p.want("ACK", func(g *layers.TCP) bool { return g.ACK && !g.RST && g.Ack == p.seq && len(g.Payload) == 0 })
		p.say("behind")
	}},
	{"FIN in the handshake's ACK", func(p *peer, _ *echo) {
		p.knock("")
		if p.mode == "router" { // SYNPROXY begins a connection only with an ACK without FIN
			p.send(segment{flags: "F.", options: p.stamps()})
			p.wantSilence("the FIN")
			p.send(segment{flags: ".", options: p.stamps()})
		}
		for range 10 {
			p.send(segment{flags: "F.", options: p.stamps()})
			for got := p.receive(again); got != nil; got = p.receive(again) {
				if got.RST {
					p.Fatal("it is reset")
				}
				if got.FIN && got.Ack == p.seq+1 {
					return
				}
			}
		}
		p.Error("the server does not end it")
	}},
	{"SYN for a connection that there is", func(p *peer, _ *echo) {
		p.connect()
		p.say("before")
		seq, ack := p.seq, p.ack
		p.seq, p.ack = seq+1_000_000, 0
		p.send(segment{flags: "S", options: p.synOptions()})
		p.seq, p.ack = seq, ack
		if p.mode == "host" { // RFC 5961, 4.2
			p.want("challenge ACK", func(g *layers.TCP) bool { return g.ACK && !g.SYN && !g.RST && g.Ack == seq })
		}
		p.say("behind")
	}},
	{"TIME-WAIT at the server", func(p *peer, _ *echo) {
		p.connect()
		p.say("before")
		p.send(segment{flags: "P.", options: p.stamps(), payload: bye})
		got := p.want("FIN", func(g *layers.TCP) bool { return g.FIN })
		p.seq, p.ack = p.seq+uint32(len(bye)), got.Seq+1
		p.send(segment{flags: "F.", options: p.stamps()})
		p.want("ACK", func(g *layers.TCP) bool { return g.Ack == p.seq+1 })
		p.seq += 1_000_000
		time.Sleep(10 * time.Millisecond) // the new connection's timestamps must be later
		p.connect()
		p.say("anew")
	}},
	{"nobody listens", func(p *peer, _ *echo) {
		p.to = netip.AddrPortFrom(p.to.Addr(), closedPort)
		p.connectHastily()
		if p.mode == "host" {
			p.want("reset", func(g *layers.TCP) bool { return g.RST })
		}
	}},
	{"the handshake's ACK from elsewhere", func(p *peer, e *echo) {
		p.connect()
		p.say("mine")
		p.knockElsewhere(e)
	}},
	{"data at once, whatever the window", func(p *peer, _ *echo) {
		resets := 0
		for range 10 { // data that comes before the server has answered is lost, but the connection is not
			p.connectHastily()
			if p.isReset(segment{flags: "P.", payload: "hasty"}, "hasty") {
				resets++
			}
			p.from = netip.AddrPortFrom(p.from.Addr(), p.from.Port()+1000)
			p.ack = 0
		}
		if resets > 2 || resets > 0 && p.mode != "router" { // SYNPROXY does not translate for a moment: see awaitWindow
			p.Errorf("%d connections of 10 are answered with a reset", resets)
		}
	}},
	{"ACK of no SYN-ACK", func(p *peer, e *echo) {
		p.ack = 12345
		before := e.accepted.Load()
		p.send(segment{flags: ".", options: p.stamps()})
		p.wantSilence("the ACK")
		p.ack = 0
		p.connect()
		p.say("then")
		if got := e.accepted.Load() - before; got != 1 {
			p.Errorf("%d connections come of one", got)
		}
	}},
}

// knockElsewhere gets a SYN-ACK for one address and port. It answers from another address or port while the SYN-ACK's cookie is valid.
func (p *peer) knockElsewhere(e *echo) {
	p.Helper()
	from := p.from
	p.seq += 100_000
	p.from = netip.AddrPortFrom(from.Addr(), from.Port()+10_000)
	p.knock("")
	mine := p.from
	before := e.accepted.Load()
	for what, at := range map[string]netip.AddrPort{
		"from another port":    netip.AddrPortFrom(mine.Addr(), mine.Port()+1),
		"from another address": netip.AddrPortFrom(mine.Addr().Next(), mine.Port()),
	} {
		p.from = at
		p.send(segment{flags: "P.", options: p.stamps(), payload: "stolen"})
		p.wantSilence("the ACK " + what)
	}
	if e.accepted.Load() != before {
		p.Error("a connection comes of it")
	}
	p.from = mine
	p.say("mine")
}

const closedPort = 81

// TestEdges makes a scripted peer behave as Linux rarely behaves.
func TestEdges(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				e := s.echo()
				s.port = "[tcp/80, tcp/81]"
				s.protect(always, "")
				for i, edge := range edges {
					for j, to := range servers {
						s.sub(edge.name+", "+family(to), func(s *synScene) {
							edge.do(s.newPeer(to, uint16(20_000+2*(10*i+j))), e)
						})
					}
				}
			})
		})
	}
}

// TestLostACK drops the first ACK of a Linux client.
func TestLostACK(t *testing.T) {
	for _, mode := range modes {
		for _, stamps := range []string{"0", "1"} {
			t.Run(mode+", timestamps "+stamps, func(t *testing.T) {
				t.Parallel()
				synInScene(t, mode, 1, 1500, func(s *synScene) {
					s.echo()
					s.protect(always, "")
					s.sysctl(s.clients[0], "ipv4/tcp_timestamps", stamps)
					s.run(s.clients[0], "nft add table inet t")
					s.run(s.clients[0], "nft add chain inet t o { type filter hook output priority 0 ; }")
					for _, to := range servers {
						s.run(s.clients[0], "nft add rule inet t o meta nfproto "+strings.ToLower(family(to))+
							" tcp dport 80 tcp flags == ack limit rate 1/hour burst 1 packets drop")
						if err := s.visitEcho(s.clients[0], to); err != nil {
							t.Errorf("%s: %v", to, err)
						}
					}
				})
			})
		}
	}
}

// TestStaleProof ends a connection before the XDP program knows that the kernel has the connection. The client connects again while the kernel itself
// answers SYNs with cookies.
func TestStaleProof(t *testing.T) {
	t.Parallel()
	synInScene(t, "host", 1, 1500, func(s *synScene) {
		s.echo()
		s.protect(always, "")
		p := s.newPeer(servers[0], 20000)
		p.connect()
		time.Sleep(50 * time.Millisecond)
		p.send(segment{flags: "R.", options: p.stamps()})
		time.Sleep(50 * time.Millisecond)
		s.sysctl(s.server, "ipv4/tcp_syncookies", "2")
		s.protect(idle, "")
		p.seq += 1_000_000
		p.connect()
		p.say("anew")
	})
}

// sub runs a part of a test that may end early.
func (s *synScene) sub(name string, do func(s *synScene)) {
	s.Run(name, func(t *testing.T) {
		part := *s
		part.T = t
		do(&part)
	})
}

// echo is a server that sends back the data that it receives.
type echo struct{ accepted atomic.Int64 }

// bye is the text after which an echo server ends a connection.
const bye = "bye"

func (s *synScene) echo() *echo {
	e := &echo{}
	for _, at := range servers {
		l := s.listen(at.String())
		go e.serve(l)
	}
	return e
}

func (e *echo) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		e.accepted.Add(1)
		go func() {
			defer c.Close()
			buffer := make([]byte, 1<<16)
			for {
				n, err := c.Read(buffer)
				if err != nil || bytes.HasSuffix(buffer[:n], []byte(bye)) {
					return
				}
				if _, err := c.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// TestMultipath makes a client request MPTCP from a protected service. The connection must use plain TCP.
func TestMultipath(t *testing.T) {
	for _, mode := range modes {
		synInScene(t, mode, 1, 1500, func(s *synScene) {
			s.echo()
			s.protect(always, "")
			for _, to := range servers {
				var c net.Conn
				err := s.clients[0].Do(func() (err error) {
					d := net.Dialer{Timeout: synPatience}
					d.SetMultipathTCP(true)
					c, err = d.DialContext(s.ctx, "tcp", to.String())
					return err
				})
				if err != nil {
					t.Errorf("%s: %v", to, err)
					continue
				}
				if multipath, err := c.(*net.TCPConn).MultipathTCP(); err != nil || multipath {
					t.Errorf("%s: MPTCP is in use: %t, %v", to, multipath, err)
				}
				if err := converse(c, "hello"); err != nil {
					t.Errorf("%s: %v", to, err)
				}
				c.Close()
			}
		})
	}
}

// converse sends text to an echo server. It fails unless the server returns the same text.
func converse(c net.Conn, text string) error {
	c.SetDeadline(time.Now().Add(synPatience))
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != text {
		return net.UnknownNetworkError(string(got))
	}
	return nil
}

// TestFullQueue makes more clients connect than the server's accept queue can hold. When the server accepts, all of them must be served.
func TestFullQueue(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.sysctl(s.server, "core/somaxconn", "2")
				l := s.listen(servers[0].String())
				s.protect(always, "")
				const clients = 5
				results := make(chan error, clients)
				for range clients {
					go func() { results <- s.visitEcho(s.clients[0], servers[0]) }()
				}
				time.Sleep(300 * time.Millisecond)
				go new(echo).serve(l)
				for range clients {
					if err := <-results; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// visitEcho connects to an echo server, and exchanges a text.
func (s *synScene) visitEcho(from *lab.Host, to netip.AddrPort) error {
	c, err := s.dial(from, to)
	if err != nil {
		return err
	}
	defer c.Close()
	return converse(c, "hello")
}
