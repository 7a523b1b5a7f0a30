// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestGameQueriesRandom sends random datagrams to a game server during a flood. Their forms are valid, nearly valid or invalid. Their challenges are
// from the server, from the program, or invented. The program must decide like ir.Eval, both in its entry and in general().
func TestGameQueriesRandom(t *testing.T) {
	r := testutil.Random(t)
	f := loadFlooded(t, "{protect: a2s, known: 10000000/s, limit: off, total: {rate: 1/h, burst: 1}}")
	reasons := map[string]int{}
	f.talks(t, reasons, []string{"game:served", "game:proved", "game:challenge", "game:total"}, func() func() {
		g := &gameTalk{flooded: f, r: r, cookies: map[string]string{}, issued: map[string]bool{}, kept: map[string]bool{}}
		g.begin(t)
		return func() { g.send(t, reasons) }
	})
}

// gameTalk has the state of a game server and its clients.
type gameTalk struct {
	flooded
	r       *rand.Rand
	cookies map[string]string // by client
	issued  map[string]bool   // challenges that the server has issued, each with its client in front
	kept    map[string]bool   // the server's stored answers, by its address and the kind of query
}

const gameKinds = "TUV"

func (g *gameTalk) client() string { return talkClient(g.r) }

func gameQuery(kind byte, challenge string) []byte {
	if kind == 'T' {
		return gameInfo(challenge)
	}
	return gameMessage(kind, challenge)
}

// begin uses up the limit total, makes the server send answers and challenges, and makes clients request challenges.
func (g *gameTalk) begin(t *testing.T) {
	t.Helper()
	for _, from := range []string{"198.51.1.1:1 > 192.0.2.1", "[2001:db8::1]:1 > [2001:db8::1]"} {
		g.answered(t, arrived(t, "udp "+from+":7000", []byte("hello")))
	}
	g.forgetAnswers(t)
	for i := range 6 {
		client := g.client()
		if i%2 == 0 {
			challenge := fmt.Sprintf("%04d", g.r.IntN(1e4))
			g.issued[client+" "+challenge] = true
			if _, _, err := g.Egress().Test(left(t, client, gameMessage('A', challenge))); err != nil { // which the program may convert to a query
				t.Fatal(err)
			}
			continue
		}
		at := g.r.IntN(3)
		g.kept[strings.Fields(client)[3]+gameKinds[at:at+1]] = true
		g.leave(t, left(t, client, gameMessage("IDE"[at], strings.Repeat("x", g.r.IntN(1395)))))
	}
	for range 8 {
		client := g.client()
		if answer, _ := g.answered(t, arrived(t, client, gameInfo(""))); len(answer) == 9 {
			g.cookies[client] = string(answer[5:])
		}
	}
}

// datagram returns a query with a random challenge, or sometimes another datagram.
func (g *gameTalk) datagram(client string) []byte {
	challenge := g.cookies[client]
	switch g.r.IntN(6) {
	case 0:
		challenge = fmt.Sprintf("%04d", g.r.IntN(1e4))
	case 1, 2:
		for issued := range g.issued {
			if challenge = issued[len(issued)-4:]; strings.HasPrefix(issued, client+" ") {
				break
			}
		}
	case 3:
		challenge = g.cookies[g.client()]
	}
	b := gameQuery(gameKinds[g.r.IntN(3)], challenge)
	if g.r.IntN(8) == 0 {
		b[g.r.IntN(len(b))] ^= 1 << g.r.IntN(8)
	}
	switch g.r.IntN(16) {
	case 0:
		b = b[:1+g.r.IntN(len(b))]
	case 1:
		b = append(b, make([]byte, 1+g.r.IntN(30))...)
	}
	return b
}

// send sends a datagram in, and compares the result with ir.Eval.
func (g *gameTalk) send(t *testing.T, reasons map[string]int) {
	t.Helper()
	client := g.client()
	frame := arrived(t, client, g.datagram(client))
	if g.r.IntN(20) == 0 {
		frame = frame[:14+g.r.IntN(len(frame)-13)]
	}
	pkt := packet.Decode(frame)
	named := func(pkt *packet.Packet) string {
		id, _ := packet.A2S.Named(pkt.Payload, 0)
		return string(id)
	}
	proves := func(_ int, pkt *packet.Packet) bool {
		c := named(pkt)
		return c != "" && (c == g.cookies[client] || g.issued[client+" "+c])
	}
	verdict, reason := g.program.Eval(&pkt, g.flooding(ir.World{
		Served: func(_ int, pkt *packet.Packet) bool {
			c := named(pkt)
			return c != "" && c == g.cookies[client] && g.kept[strings.Fields(client)[3]+string(pkt.Payload[4:5])]
		},
		Proved: proves, Proves: proves,
	}))
	want := g.program.ReasonName(reason)
	reasons[want]++
	if g.r.IntN(2) == 0 {
		g.decidesAs(t, client, frame, verdict, want)
		return
	}
	answer, passes := g.answered(t, frame)
	if passes != (verdict == ir.Pass) || (answer != nil) != verdict.Answers() {
		t.Fatalf("%x from %s: it passes is %t, answered with %x; ir.Eval says %s at %s", frame, client, passes, answer, verdict, want)
	}
	if verdict == ir.Challenge && g.cookies[client] != "" && string(answer[5:]) != g.cookies[client] {
		t.Fatalf("%s gets the challenge %x, and got %x", client, answer[5:], g.cookies[client])
	}
}
