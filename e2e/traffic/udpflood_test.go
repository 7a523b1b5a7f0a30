// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/testutil"
)

// game is a UDP service on the server's port 7000. It returns each datagram to its sender.
type game struct {
	*scene
	reached atomic.Uint64 // the number of datagrams from networks other than the client's
}

const gamePolicy = `
default: drop
checks: strict
services: [{name: game, port: udp/7000, udp: {start: 500/s, limit: {rate: 20/s, per: from/24/56}, total: 50/s}}]
`

func (s *scene) openGame() *game {
	s.Helper()
	g := &game{scene: s}
	err := s.server.Do(func() error {
		c, err := net.ListenPacket("udp", ":7000")
		if err != nil {
			return err
		}
		s.Cleanup(func() { c.Close() })
		go func() {
			buf := make([]byte, 2048)
			for {
				n, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				if who := from.(*net.UDPAddr).AddrPort().Addr().Unmap(); who.Is4() && who.As4()[1] != 1 {
					g.reached.Add(1)
				}
				c.WriteTo(buf[:n], from)
			}
		}()
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return g
}

// player is a client of the game, with one port.
type player struct{ net.Conn }

func (g *game) player(from *lab.Host, to string) player {
	g.Helper()
	c, err := from.Dial(g.ctx, "udp", netip.MustParseAddrPort(to))
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { c.Close() })
	return player{c}
}

// play sends n datagrams, 20 a second. If no answer arrives within a second, it sends the datagram again. It returns the number of datagrams that
// were answered at the first try, and the number of all that were answered.
func (p player) play(n int) (first, all int) {
	buf := make([]byte, 100)
	for i := range n {
		for try := range 4 {
			text := fmt.Sprintf("move %d", i)
			p.Write([]byte(text))
			p.SetReadDeadline(time.Now().Add(time.Second))
			got, err := p.Read(buf)
			for err == nil && string(buf[:got]) != text { // an answer to an earlier datagram that was sent again
				got, err = p.Read(buf)
			}
			if err == nil {
				all++
				if try == 0 {
					first++
				}
				break
			}
		}
		time.Sleep(time.Second / 20)
	}
	return first, all
}

// TestUDPFlood makes clients of a UDP service continue while forged packets of the same kind arrive from random sources. All packets of known clients
// must be answered. The service may receive only as many other packets as its limits pass. After the flood, newcomers must be served as before.
func TestUDPFlood(t *testing.T) {
	t.Parallel()
	inScene(t, func(s *scene) {
		g := s.openGame()
		s.apply(plan.TargetXDP, gamePolicy)
		players := []player{g.player(s.client, "10.1.0.2:7000"), g.player(s.client, "10.1.0.2:7000"), g.player(s.client, "[fd01::2]:7000")}
		g.together(players, int(20*(ir.KnownTimes+1)*ir.KnownUnit/time.Second))
		if n := s.counted("game:total") + s.counted("game:limit"); n > 0 {
			t.Fatalf("without a flood %d packets are dropped", n)
		}
		if s.counted("game:known") == 0 {
			t.Fatal("no client is known")
		}
		r := rand.New(rand.NewPCG(1, 2))
		var lines []string
		for range 3000 {
			lines = append(lines, fmt.Sprintf("udp %d.%d.%d.%d:%d > 10.0.0.2:7000 len=%d", 20+r.IntN(100), r.IntN(256), r.IntN(256), r.IntN(256), 1024+r.IntN(60000), 34+r.IntN(60)))
		}
		began := time.Now()
		s.udpStands("game", false, len(players))
		s.besideFlood(lines, "game:total", func() {
			s.udpStands("game", true, len(players))
			g.together(players, 100)
		})
		// The limits pass the burst of start, packets at the rate of start for a moment, and then packets at the rate of total. The rest of the
		// factor is for forged sources that appear again after an answer.
		most := 2*500 + 50 + 5*uint64(50+50*time.Since(began)/time.Second)
		if n := g.reached.Load(); n > most {
			t.Errorf("%d forged datagrams reached the service, want at most %d", n, most)
		}
		t.Logf("%d forged datagrams of %d reached the service", g.reached.Load(), s.counted("game:total")+s.counted("game:limit")+g.reached.Load())
		if !testutil.Eventually(ir.FloodTime+patience, func() bool {
			calm := s.counted("game:calm")
			g.player(s.client, "10.1.0.2:7000").play(1)
			return s.counted("game:calm") > calm
		}) {
			t.Error("the flood goes on")
		}
		if first, all := g.player(s.client, "10.1.0.2:7000").play(20); all != 20 {
			t.Errorf("after the flood %d of 20 datagrams of a newcomer are answered, %d at once", all, first)
		}
	})
}

// together makes players play at the same time. Each player must get all answers.
func (g *game) together(players []player, n int) {
	g.Helper()
	var all sync.WaitGroup
	for i, p := range players {
		all.Go(func() {
			if first, got := p.play(n); got != n {
				g.Errorf("player %d: %d of %d datagrams are answered, %d at once", i, got, n, first)
			}
		})
	}
	all.Wait()
}

// udpStands checks the status of a protected service: whether it is under a flood, and the number of known clients.
func (s *scene) udpStands(service string, flood bool, known int) {
	s.Helper()
	var status *control.Status
	err := s.server.Do(func() (err error) {
		status, err = s.Status(s.ctx)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	u := status.UDP
	if u == nil || len(u.Services) != 1 || u.Services[0].Service != service || u.Services[0].Flood != flood || u.Services[0].Left > 0 != flood || u.Known != known {
		s.Errorf("status says %+v, want a flood: %t, and %d known clients", u, flood, known)
	}
}
