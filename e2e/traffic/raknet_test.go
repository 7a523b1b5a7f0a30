// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandertv/go-raknet"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/testutil"
)

const rakNetPolicy = `
default: drop
checks: strict
services: [{name: game, port: udp/19132, udp: {protect: raknet, start: 500/s, limit: {rate: 500/s, per: from/24/56}, total: 50/s}}]
`

// rakNet is a RakNet server of a public library. It returns the data of its players.
type rakNet struct {
	*scene
	server  *raknet.Listener
	reached atomic.Uint64 // the number of datagrams from addresses beyond the client's link
	sent    atomic.Uint64 // the number of datagrams that the server has sent to such addresses
}

// openRakNet starts a server, with or without the library's own cookies.
func (s *scene) openRakNet(cookies bool) *rakNet {
	s.Helper()
	g := &rakNet{scene: s}
	l, err := raknet.ListenConfig{UpstreamPacketListener: g, DisableCookies: !cookies}.Listen("[::]:19132")
	if err != nil {
		s.Fatal(err)
	}
	g.server = l
	s.Cleanup(func() { l.Close() })
	l.PongData([]byte("MCPE;Floodwall"))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for buf := make([]byte, 2048); ; {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					c.Write(buf[:n])
				}
			}()
		}
	}()
	return g
}

// ListenPacket opens a socket on the server's host for the library. The socket counts the datagrams from and to addresses outside of the client's
// link.
func (g *rakNet) ListenPacket(_, address string) (net.PacketConn, error) {
	return countedConn{g.udpOn(g.scene.server, address), g}, nil
}

type countedConn struct {
	net.PacketConn
	game *rakNet
}

// ofClient reports whether an address is on the client's link.
func ofClient(a net.Addr) bool {
	who := a.(*net.UDPAddr).AddrPort().Addr().Unmap()
	return netip.MustParsePrefix("10.1.0.0/24").Contains(who) || netip.MustParsePrefix("fd01::/64").Contains(who)
}

func (c countedConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.PacketConn.ReadFrom(b)
	if err == nil && !ofClient(from) {
		c.game.reached.Add(1)
	}
	return n, from, err
}

func (c countedConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if !ofClient(to) {
		c.game.sent.Add(1)
	}
	return c.PacketConn.WriteTo(b, to)
}

// DialContext opens a socket on the client's host for the library.
func (g *rakNet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return g.client.Dial(ctx, network, netip.MustParseAddrPort(address))
}

// connects connects a player, and returns the number of tries. The test's flood is as fast as possible, so it may fill the ring of the veth. If the
// client's last reply is then lost, the library refuses the client for ten seconds. So the client tries again.
func (g *rakNet) connects(to string) (c *raknet.Conn, tries int, err error) {
	for tries = 1; tries <= 6; tries++ {
		if c, err = (raknet.Dialer{UpstreamDialer: g}).DialTimeout(to, 12*time.Second); err == nil {
			return c, tries, nil
		}
	}
	return nil, tries, fmt.Errorf("%s: %w", to, err)
}

// echoes makes a player send texts. Each text must be returned, because the protocol repeats lost data.
func echoes(c *raknet.Conn, texts int) error {
	for i := range texts {
		text := fmt.Sprintf("\xfemove %d", i) // Minecraft's messages begin with this byte
		if _, err := c.Write([]byte(text)); err != nil {
			return err
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if got, err := c.ReadPacket(); err != nil || string(got) != text {
			return fmt.Errorf("%q comes back as %q: %w", text, got, err)
		}
		time.Sleep(time.Second / 20)
	}
	return nil
}

// plays makes players send texts at the same time.
func (g *rakNet) plays(players []*raknet.Conn, texts int) {
	g.Helper()
	var all sync.WaitGroup
	for i, p := range players {
		all.Go(func() {
			if err := echoes(p, texts); err != nil {
				g.Errorf("player %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// rakNetFlood returns requests and data from random sources.
func rakNetFlood() (lines []string) {
	const magic = "00ffff00fefefefefdfdfdfd12345678"
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		payload := []string{
			"05" + magic + "0b" + strings.Repeat("00", 14+r.IntN(100)),
			fmt.Sprintf("07%s%08x0004f5fffffd4abc05d40000000000000001", magic, r.Uint32()),
			"07" + magic + "04f5fffffd4abc05d40000000000000001",
			"8400000040009000000009" + strings.Repeat("00", 17), "c000010100000000",
		}[i%5]
		lines = append(lines, fmt.Sprintf("udp %d.%d.%d.%d:%d > 10.0.0.2:19132 payload=0x%s", 20+r.IntN(100), r.IntN(256), r.IntN(256), r.IntN(256), 1024+r.IntN(60000), payload))
	}
	return lines
}

// TestRakNetFlood floods a RakNet server with requests and data from random sources. Players must be able to continue, and newcomers must be able to
// connect and send. Two things must be bounded: the part of the flood that reaches the server, and the server's traffic to forged addresses.
func TestRakNetFlood(t *testing.T) {
	for name, cookies := range map[string]bool{"with cookies of its own": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inScene(t, func(s *scene) {
				if _, err := s.lab.NewSink(s.clientEnd, lab.PassAll); err != nil { // without it the client does not receive XDP's packets: see synScene.hear
					t.Fatal(err)
				}
				g := s.openRakNet(cookies)
				s.apply(plan.TargetXDP, rakNetPolicy)
				servers := []string{"10.1.0.2:19132", "[fd01::2]:19132"}
				var players []*raknet.Conn
				for _, to := range servers {
					c, _, err := g.connects(to)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					players = append(players, c)
				}
				g.plays(players, int(20*(ir.KnownTimes+1)*ir.KnownUnit/time.Second))
				if n := s.counted("game:challenge") + s.counted("game:total") + s.counted("game:limit"); n > 0 || s.counted("game:known") == 0 {
					t.Fatalf("without a flood %d packets are answered or dropped, %d are of known players", n, s.counted("game:known"))
				}
				began := time.Now()
				s.besideFlood(rakNetFlood(), "game:challenge", func() {
					var joining sync.WaitGroup
					var again atomic.Uint64
					for i := range 40 {
						joining.Go(func() {
							c, tries, err := g.connects(servers[i%2])
							if err != nil {
								t.Errorf("newcomer %d: %v", i, err)
								return
							}
							defer c.Close()
							again.Add(uint64(tries - 1))
							if err := echoes(c, 40); err != nil {
								t.Errorf("newcomer %d: %v", i, err)
							}
						})
					}
					joining.Go(func() { g.plays(players, 100) })
					joining.Wait()
					t.Logf("40 newcomers have connected, %d times at another try", again.Load())
					if n := s.counted("game:proved"); n < 40 {
						t.Errorf("%d second requests have proved an address", n)
					}
				})
				took := uint64(time.Since(began)/time.Second) + 1
				// The server may receive three parts: the burst of start, packets at the rate of start for a moment, and then packets at the rate of
				// total.
				if n, most := g.reached.Load(), 2*500+100*took+100; n > most {
					t.Errorf("%d forged datagrams reached the server, want at most %d", n, most)
				}
				each := uint64(1)
				if !cookies { // the server accepts a forged second request as a client's, and sends there for ten seconds
					each = 20
				}
				if n, most := g.sent.Load(), each*g.reached.Load(); n > most {
					t.Errorf("the server has sent %d datagrams to forged addresses, want at most %d", n, most)
				}
				t.Logf("%d forged datagrams reached the server, which sent %d there, in %d s; %d were answered, %d dropped", g.reached.Load(), g.sent.Load(), took,
					s.counted("game:challenge"), s.counted("game:total")+s.counted("game:limit"))
				if !testutil.Eventually(ir.FloodTime+10*time.Second, func() bool {
					calm := s.counted("game:calm")
					c, _, err := g.connects(servers[0])
					if err != nil {
						return false
					}
					defer c.Close()
					return echoes(c, 5) == nil && s.counted("game:calm") > calm
				}) {
					t.Error("the flood goes on")
				}
			})
		})
	}
}
