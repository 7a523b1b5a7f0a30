// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	a2s "github.com/rumblefrog/go-a2s"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/testutil"
)

const gameServerPolicy = `
default: drop
checks: strict
services: [{name: game, port: udp/27015, udp: {protect: a2s, start: 500/s, limit: {rate: 500/s, per: from/24/56}, total: 50/s}}]
`

// gameServer answers queries as Source servers do (https://developer.valvesoftware.com/wiki/Server_queries). If a query has a valid challenge, it
// answers with the information. Otherwise it answers with a challenge for the client's address. It returns all other datagrams to their senders,
// which play.
type gameServer struct {
	*scene
	seed       maphash.Seed
	queries    atomic.Uint64 // queries with a valid challenge
	challenged atomic.Uint64
	players    atomic.Int32
}

const gameName = "Floodwall's own server"

func (s *scene) openGameServer() *gameServer {
	s.Helper()
	g := &gameServer{scene: s, seed: maphash.MakeSeed()}
	g.players.Store(2)
	c := s.udpOn(s.server, "[::]:27015")
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(g.answer(buf[:n], from), from)
		}
	}()
	return g
}

func (g *gameServer) answer(b []byte, from netip.AddrPort) []byte {
	if len(b) < 9 || binary.BigEndian.Uint32(b) != 0xffffffff {
		return b
	}
	challenge := binary.NativeEndian.AppendUint64(nil, maphash.Comparable(g.seed, from))[:4]
	rest := b[5:]
	if b[4] == 'T' {
		rest = bytes.TrimPrefix(rest, []byte("Source Engine Query\x00"))
	}
	head := []byte{0xff, 0xff, 0xff, 0xff}
	if !bytes.Equal(rest, challenge) {
		g.challenged.Add(1)
		return append(append(head, 'A'), challenge...)
	}
	g.queries.Add(1)
	players := byte(g.players.Load())
	switch b[4] {
	case 'T':
		text := gameName + "\x00de_dust2\x00cstrike\x00Counter-Strike: Source\x00"
		return append(append(append(head, 'I', 17), text...), 240, 0, players, 32, 0, 'd', 'l', 0, 1, '1', '.', '0', 0, 0)
	case 'U':
		b := append(head, 'D', players)
		for i := range players {
			b = append(append(b, i), fmt.Sprintf("player %d\x00\x07\x00\x00\x00\x00\x00\x80\x3f", i)...)
		}
		return b
	}
	return append(append(head, 'E', 1, 0), "mp_timelimit\x0030\x00"...)
}

// asks queries a server for information, players and rules with a client library. The library sends each query once. The test's flood is as fast as
// possible and fills the ring of the veth. So a query without an answer within a second is repeated, up to eight times in all.
func (s *scene) asks(from *lab.Host, to string) (players int, err error) {
	var c *a2s.Client
	if err := from.Do(func() (err error) { c, err = a2s.NewClient(to, a2s.TimeoutOption(time.Second)); return err }); err != nil {
		return 0, err
	}
	defer c.Close()
	info, err := asked(c.QueryInfo)
	if err != nil {
		return 0, fmt.Errorf("info: %w", err)
	}
	list, err := asked(c.QueryPlayer)
	if err != nil {
		return 0, fmt.Errorf("players: %w", err)
	}
	rules, err := asked(c.QueryRules)
	if err != nil {
		return 0, fmt.Errorf("rules: %w", err)
	}
	if info.Name != gameName || len(list.Players) != int(info.Players) || rules.Rules["mp_timelimit"] != "30" {
		return 0, fmt.Errorf("it is told %+v, %+v, %+v", info, list, rules)
	}
	return int(info.Players), nil
}

// asked calls ask up to eight times, until there is an answer.
func asked[T any](ask func() (T, error)) (answer T, err error) {
	for range 8 {
		if answer, err = ask(); err == nil {
			break
		}
	}
	return answer, err
}

// quakestat queries a server with the program quakestat.
func (s *scene) quakestat(from *lab.Host, to string) error {
	return from.Do(func() error {
		out, err := exec.Command("quakestat", "-a2s", to, "-P", "-R", "-retry", "8", "-interval", "1").CombinedOutput()
		if err != nil || !strings.Contains(string(out), gameName) || !strings.Contains(string(out), "player 1") || !strings.Contains(string(out), "mp_timelimit=30") {
			return fmt.Errorf("quakestat: %w\n%s", err, out)
		}
		return nil
	})
}

// TestGameServerFlood floods a game server with queries and players' datagrams from random sources. Newcomers query it with two public clients. They
// must be answered, mostly without the server. Players must be able to continue. The traffic that the server sends to forged addresses must be
// bounded.
func TestGameServerFlood(t *testing.T) {
	t.Parallel()
	testutil.RequireTool(t, "quakestat")
	inScene(t, func(s *scene) {
		if _, err := s.lab.NewSink(s.clientEnd, lab.PassAll); err != nil { // without it the client does not receive XDP's packets: see synScene.hear
			t.Fatal(err)
		}
		g := s.openGameServer()
		s.apply(plan.TargetXDP, gameServerPolicy)
		others := &game{scene: s}
		players := []player{others.player(s.client, "10.1.0.2:27015"), others.player(s.client, "[fd01::2]:27015")}
		others.together(players, int(20*(ir.KnownTimes+1)*ir.KnownUnit/time.Second))
		servers := []string{"10.1.0.2:27015", "[fd01::2]:27015"}
		r := rand.New(rand.NewPCG(1, 2))
		var lines []string
		for i := range 3000 {
			payload := []string{"0xffffffff54" + fmt.Sprintf("%x", "Source Engine Query\x00"), "0xffffffff55ffffffff", "0xffffffff5601020304", "0x4142434445464748"}[i%4]
			lines = append(lines, fmt.Sprintf("udp %d.%d.%d.%d:%d > 10.0.0.2:27015 payload=%s", 20+r.IntN(100), r.IntN(256), r.IntN(256), r.IntN(256), 1024+r.IntN(60000), payload))
		}
		began := time.Now()
		s.besideFlood(lines, "game:challenge", func() {
			for _, to := range servers { // these are the first queries, so the server answers them
				if _, err := s.asks(s.client, to); err != nil {
					t.Errorf("the first who asks %s: %v", to, err)
				}
			}
			before := g.queries.Load() + g.challenged.Load()
			var asking sync.WaitGroup
			for i := range 40 {
				asking.Go(func() {
					to := servers[i%2]
					if players, err := s.asks(s.client, to); err != nil || players < 2 {
						t.Errorf("newcomer %d: %s tells %d players: %v", i, to, players, err)
					}
				})
			}
			asking.Wait()
			if err := s.quakestat(s.client, servers[0]); err != nil {
				t.Error(err)
			}
			others.together(players, 40)
			if n := s.counted("game:served"); n < 60 {
				t.Errorf("%d queries are answered in the server's place, of 120", n)
			}
			if n := g.queries.Load() + g.challenged.Load() - before; n > 120+uint64(150*time.Since(began)/time.Second)+2*550 {
				t.Errorf("%d queries reached the server", n)
			}
			// The server's information changes. Newcomers must get the new information.
			g.players.Store(5)
			if !testutil.Eventually(30*time.Second, func() bool { n, _ := s.asks(s.client, servers[0]); return n == 5 }) {
				t.Error("newcomers are told what was half a minute ago")
			}
		})
		if n, most := g.challenged.Load(), 2*500+200*uint64(time.Since(began)/time.Second+1)+1000; n > most {
			t.Errorf("the server has sent %d challenges, want %d at most", n, most)
		}
	})
}
