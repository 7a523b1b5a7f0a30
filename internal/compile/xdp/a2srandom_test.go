package xdp_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestGameQueriesRandom has random datagrams arrive at a game server in a flood, of forms that are right, nearly right and wrong, with challenges of the server, with
// those that clients got from the program, and with others. The program, by its entry and without, decides as ir.Eval does.
func TestGameQueriesRandom(t *testing.T) {
	r := testutil.Random(t)
	f := loadFlooded(t, "{protect: a2s, known: 10000000/s, limit: off, total: {rate: 1/h, burst: 1}}")
	reasons := map[string]int{}
	for range testutil.Scaled(10, 10_000) {
		f.forget(t)
		f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
		g := &gameTalk{flooded: f, r: r, cookies: map[string]string{}, issued: map[string]bool{}, kept: map[string]bool{}}
		const unit = 36 // bits of nanoseconds: A2S_COOKIE_UNIT
		began := image.Monotonic() >> unit
		g.begin(t)
		for range 1000 {
			if image.Monotonic()>>unit == began { // else there are other cookies
				g.send(t, reasons)
			}
		}
	}
	for _, name := range []string{"game:served", "game:proved", "game:challenge", "game:total"} {
		if reasons[name] < 200 {
			t.Errorf("%d packets are decided by %s, want more for a test of it: %v", reasons[name], name, reasons)
		}
	}
	t.Logf("%v", reasons)
}

// gameTalk is what a game server and its clients know.
type gameTalk struct {
	flooded
	r       *rand.Rand
	cookies map[string]string // by client
	issued  map[string]bool   // by the server, behind the client
	kept    map[string]bool   // its answers, by its address and the kind of query
}

const gameKinds = "TUV"

// client draws one. The IPv6 addresses of the server differ in their upper half: where both ends differ in their last byte alone, the hash of conversations has no
// more than 8 bits of its secrets, and one of some hundred runs had two clients with one hash.
func (g *gameTalk) client() string {
	if g.r.IntN(4) == 0 {
		return fmt.Sprintf("udp [2001:db8::%x]:4000 > [2001:db8:%x::1]:7000", 1+g.r.IntN(5), 1+g.r.IntN(2))
	}
	return fmt.Sprintf("udp 198.51.100.%d:4000 > 192.0.2.%d:7000", 1+g.r.IntN(5), 1+g.r.IntN(2))
}

func gameQuery(kind byte, challenge string) []byte {
	if kind == 'T' {
		return gameInfo(challenge)
	}
	return gameMessage(kind, challenge)
}

// begin has the packets that total lets pass, the server send answers and challenges, and clients ask for theirs.
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
			if _, _, err := g.Egress().Test(left(t, client, gameMessage('A', challenge))); err != nil { // which may be turned
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

// datagram is a query with any challenge, or now and then another datagram.
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

// send has a datagram arrive, and compares what becomes of it.
func (g *gameTalk) send(t *testing.T, reasons map[string]int) {
	t.Helper()
	client := g.client()
	frame := arrived(t, client, g.datagram(client))
	if g.r.IntN(20) == 0 {
		frame = frame[:14+g.r.IntN(len(frame)-13)]
	}
	pkt := packet.Decode(frame)
	queries := g.program.Rules[slices.IndexFunc(g.program.Rules, func(r ir.Rule) bool { return r.Name == "game:queries" })].Over
	named := func(pkt *packet.Packet) string {
		id, _ := packet.A2S.Named(pkt.Payload, 0)
		return string(id)
	}
	verdict, reason := g.program.Eval(&pkt, ir.World{
		Calm:  func(int, *packet.Packet) bool { return false },
		Over:  func(limit int, _ *packet.Packet) bool { return !slices.Contains(queries, limit) },
		Spent: func(int, *packet.Packet) bool { return true },
		Served: func(_ int, pkt *packet.Packet) bool {
			c := named(pkt)
			return c != "" && c == g.cookies[client] && g.kept[strings.Fields(client)[3]+string(pkt.Payload[4:5])]
		},
		Proved: func(_ int, pkt *packet.Packet) bool {
			c := named(pkt)
			return c != "" && (c == g.cookies[client] || g.issued[client+" "+c])
		},
	})
	want := g.program.ReasonName(reason)
	reasons[want]++
	if g.r.IntN(2) == 0 {
		a, err := g.AskAt(datapath.Question{Frame: frame})
		if err != nil {
			t.Fatal(err)
		}
		got := "default"
		if at := int(a.Slot) - image.SlotRules; at >= 0 && at < len(g.program.Rules) {
			got = g.program.Rules[at].Name
		}
		if strings.HasPrefix(want, "game") && got != want || ir.Verdict(a.Verdict) != verdict {
			t.Fatalf("%x from %s: %s at %s; ir.Eval says %s at %s", frame, client, ir.Verdict(a.Verdict), got, verdict, want)
		}
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
