package xdp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// gameMessage is a message of a game server or its client.
func gameMessage(kind byte, rest string) []byte {
	return append([]byte{0xff, 0xff, 0xff, 0xff, kind}, rest...)
}

// gameInfo is a query for INFO with a challenge, "" for none.
func gameInfo(challenge string) []byte { return gameMessage('T', "Source Engine Query\x00"+challenge) }

// answered sends a frame through the entry, and returns the payload of the datagram that is sent back, if any: to the client, from the service, with
// lengths and checksums as gopacket makes them.
func (f flooded) answered(t *testing.T, frame []byte) (payload []byte, passes bool) {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+2000), Repeat: 1}
	action, err := f.Native().Run(&o)
	if err != nil {
		t.Fatal(err)
	}
	if action != 3 { // XDP_TX
		return nil, action == 2
	}
	sent := wellFormed(t, o.DataOut)
	asked := packet.Decode(frame)
	if sent.Src != asked.Dst || sent.Dst != asked.Src || sent.Value[packet.SPort] != asked.Value[packet.DPort] || sent.Value[packet.DPort] != asked.Value[packet.SPort] {
		t.Fatalf("the answer goes from %v to %v, the query came from %v to %v", sent.Src, sent.Dst, asked.Src, asked.Dst)
	}
	return sent.Payload, false
}

// turned has a challenge leave, of which the program at egress makes a query of its receiver.
func (f flooded) turned(t *testing.T, frame, query []byte) {
	t.Helper()
	const redirect = 7 // TC_ACT_REDIRECT
	action, out, err := f.Egress().Test(frame)
	if err != nil || action != redirect {
		t.Fatalf("a challenge that leaves gets %d, %v", action, err)
	}
	left, back := packet.Decode(frame), wellFormed(t, out)
	if back.Src != left.Dst || back.Dst != left.Src || back.Value[packet.SPort] != left.Value[packet.DPort] || !bytes.Equal(back.Payload, query) {
		t.Fatalf("of a challenge from %v to %v becomes % x from %v to %v, want % x", left.Src, left.Dst, back.Payload, back.Src, back.Dst, query)
	}
	if !bytes.Equal(out[:6], frame[6:12]) || !bytes.Equal(out[6:12], frame[:6]) {
		t.Errorf("its Ethernet addresses are % x, of the challenge % x", out[:12], frame[:12])
	}
}

// wellFormed decodes a frame with a datagram, whose lengths and checksums must be as gopacket makes them.
func wellFormed(t *testing.T, frame []byte) packet.Packet {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	var list []gopacket.SerializableLayer
	for _, l := range p.Layers() {
		if u, ok := l.(*layers.UDP); ok {
			if u.Checksum == 0 && p.NetworkLayer().LayerType() == layers.LayerTypeIPv4 { // RFC 768: none
				frame = bytes.Clone(frame)
				copy(frame[len(frame)-len(u.Payload)-2:], []byte{0, 0})
				list = append(list, noChecksum{u}, gopacket.Payload(u.Payload))
				break
			}
			if err := u.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
			list = append(list, u, gopacket.Payload(u.Payload))
			break
		}
		list = append(list, l.(gopacket.SerializableLayer))
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, list...); err != nil {
		t.Fatal(err)
	}
	if want := b.Bytes(); !bytes.Equal(want[:min(len(want), len(frame))], frame) { // gopacket fills short frames up
		t.Fatalf("it is not as gopacket makes it:\n%s%v", cmp.Diff(want, frame), p)
	}
	return packet.Decode(frame)
}

// noChecksum is UDP without a checksum.
type noChecksum struct{ *layers.UDP }

// SerializeTo writes the header.
func (n noChecksum) SerializeTo(b gopacket.SerializeBuffer, o gopacket.SerializeOptions) error {
	o.ComputeChecksums = false
	return n.UDP.SerializeTo(b, o)
}

// forgetAnswers has no answer kept.
func (f flooded) forgetAnswers(t *testing.T) {
	t.Helper()
	m := f.Map(image.GameAnswers)
	var key, value []byte
	keys := [][]byte{}
	for entries := m.Iterate(); entries.Next(&key, &value); {
		keys = append(keys, bytes.Clone(key))
	}
	for _, key := range keys {
		if err := m.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
}

// ageAnswers has answers of the service be so much older.
func (f flooded) ageAnswers(t *testing.T, by time.Duration) {
	t.Helper()
	m := f.Map(image.GameAnswers)
	var key, value []byte
	keys := [][]byte{}
	for entries := m.Iterate(); entries.Next(&key, &value); {
		keys = append(keys, bytes.Clone(key))
	}
	for _, key := range keys {
		if err := m.Lookup(key, &value); err != nil {
			t.Fatal(err)
		}
		binary.NativeEndian.PutUint64(value, binary.NativeEndian.Uint64(value)-uint64(by))
		if err := m.Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
}

var gameClients = map[string]string{
	"IPv4": "udp 198.51.100.7:4000 > 192.0.2.1:7000", "a VLAN": "udp 198.51.100.7:4000 > 192.0.2.1:7000 vlan=7",
	"IPv6": "udp [2001:db8::7]:4000 > [2001:db8::1]:7000",
}

// TestGameQueries has a client ask a game server during a flood, as one does that follows the protocol: it gets a challenge, repeats it, and gets the server's
// answer, or else its query goes to the server.
func TestGameQueries(t *testing.T) {
	for name, client := range gameClients {
		t.Run(name, func(t *testing.T) {
			f := loadFlooded(t, "{protect: a2s, total: off}")
			f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
			ask := func(from string, query []byte) ([]byte, string) {
				t.Helper()
				before := f.counts(t)
				answer, passes := f.answered(t, arrived(t, from, query))
				at := "default"
				for i, n := range f.counts(t) {
					if n > before[i] {
						at = strings.TrimPrefix(f.program.Rules[i].Name, "game:")
					}
				}
				if want := at == "known" || at == "proved" || at == "game"; passes != want {
					t.Errorf("a query counted at %s passes: %t", at, passes)
				}
				return answer, at
			}
			challenged := func(from string, query []byte) string {
				t.Helper()
				answer, at := ask(from, query)
				if at != "challenge" || len(answer) != 9 || len(answer) > len(query) || !bytes.HasPrefix(answer, gameMessage('A', "")) {
					t.Fatalf("a query % x is counted at %s and answered with % x, want a challenge", query, at, answer)
				}
				return string(answer[5:])
			}
			other := strings.Replace(client, ":4000 ", ":4001 ", 1)
			elsewhere := strings.NewReplacer("198.51.100.7", "198.51.100.8", "db8::7", "db8::8").Replace(client)
			toClient := strings.Split(client, " vlan")[0]
			info, player, rules := gameMessage('I', "\x11"+strings.Repeat("a server", 30)), gameMessage('D', ""), gameMessage('E', strings.Repeat("r", 1395))
			for _, q := range []struct {
				with   func(challenge string) []byte
				answer []byte
			}{
				{gameInfo, info},
				{func(c string) []byte { return gameMessage('U', c) }, append(player, 0)},
				{func(c string) []byte { return gameMessage('V', c) }, rules},
			} {
				first := q.with("\xff\xff\xff\xff")
				cookie := challenged(client, first)
				if again := challenged(client, first); again != cookie {
					t.Errorf("a second challenge is % x, the first was % x", again, cookie)
				}
				if _, at := ask(client, q.with(cookie)); at != "proved" {
					t.Errorf("without an answer of the server, a query with the challenge is counted at %s", at)
				}
				f.leave(t, left(t, toClient, q.answer))
				if answer, at := ask(client, q.with(cookie)); at != "served" || !bytes.Equal(answer, q.answer) {
					t.Errorf("a query with the challenge is counted at %s and answered with % x, want served with % x", at, answer, q.answer)
				}
				for what, from := range map[string]string{"port": other, "address": elsewhere} {
					if c := challenged(from, q.with(cookie)); c == cookie {
						t.Errorf("another %s gets the same challenge", what)
					}
				}
			}
			challenged(client, gameInfo(""))
			// The answer grows old. One query a second goes to the server, and after a minute all do.
			cookie := challenged(client, gameInfo(""))
			f.ageAnswers(t, 6*time.Second)
			for i, want := range []string{"proved", "served", "served"} {
				if _, at := ask(client, gameInfo(cookie)); at != want {
					t.Errorf("of an answer that is 6 s old, query %d is counted at %s, want %s", i, at, want)
				}
			}
			f.ageAnswers(t, time.Minute)
			for range 2 {
				if _, at := ask(client, gameInfo(cookie)); at != "proved" {
					t.Errorf("of an answer that is too old, a query is counted at %s", at)
				}
			}
			// The server answers a query that went there with a challenge of its own: it gets the query again, with that.
			for _, with := range []func(string) []byte{gameInfo, func(c string) []byte { return gameMessage('U', c) }, func(c string) []byte { return gameMessage('V', c) }} {
				f.forgetAnswers(t)
				if _, at := ask(client, with(cookie)); at != "proved" {
					t.Errorf("a query with the challenge is counted at %s", at)
				}
				f.turned(t, left(t, toClient, gameMessage('A', "\x05\x06\x07\x08")), with("\x05\x06\x07\x08"))
				f.leave(t, left(t, toClient, gameMessage('A', "\x05\x06\x07\x08"))) // a second one is the client's
			}
			// A challenge of the server's own, to one who has none of ours.
			f.leave(t, left(t, strings.Split(other, " vlan")[0], gameMessage('A', "\x01\x02\x03\x04")))
			if _, at := ask(elsewhere, gameInfo("\x01\x02\x03\x04")); at != "proved" {
				t.Errorf("a query with the server's own challenge is counted at %s", at)
			}
			challenged(client, gameInfo("\x01\x02\x03\x05"))
			for what, wrong := range map[string][]byte{
				"short": gameInfo("")[:24], "one byte more": gameInfo("1"), "long": gameInfo("12345"), "another text": bytes.Replace(gameInfo(""), []byte("Engine"), []byte("engine"), 1),
				"PLAYER, short": gameMessage('U', "123"), "PLAYER, long": gameMessage('U', "12345"), "another kind": gameMessage('W', "1234"), "in parts": append([]byte{0xfe}, gameInfo("")[1:]...),
				"a game's own": []byte("hello, world"), "a byte": {1},
			} {
				if answer, at := ask(client, wrong); answer != nil || at != "game" {
					t.Errorf("%s: it is counted at %s, answered with % x", what, at, answer)
				}
			}
		})
	}
}

// TestGameAnswersKept has a server send what is no answer to be kept.
func TestGameAnswersKept(t *testing.T) {
	f := loadFlooded(t, "{protect: a2s, total: off}")
	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	for what, sent := range map[string][]byte{
		"in parts": append([]byte{0xfe, 0xff, 0xff, 0xff}, make([]byte, 100)...), "long": gameMessage('I', strings.Repeat("x", 1396)), "a challenge": gameMessage('A', "1234"),
		"a game's own": []byte("hello"), "another kind": gameMessage('X', "1234"),
	} {
		f.leave(t, left(t, client, sent))
		var key, value []byte
		if f.Map(image.GameAnswers).Iterate().Next(&key, &value) {
			t.Errorf("%s is kept as an answer", what)
		}
	}
	for i := range 2000 { // of more services than there are places
		f.leave(t, left(t, fmt.Sprintf("udp 198.51.100.7:4000 > 192.0.%d.%d:7000", i>>8, i&255), gameMessage('I', "x")))
	}
	n := 0
	var key, value []byte
	for entries := f.Map(image.GameAnswers).Iterate(); entries.Next(&key, &value); {
		n++
	}
	if n == 0 || n > int(f.Map(image.GameAnswers).MaxEntries()) {
		t.Errorf("%d answers are kept", n)
	}
}

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
	issued  map[string]bool   // by the server
	kept    map[string]bool   // its answers, by its address and the kind of query
}

const gameKinds = "TUV"

func (g *gameTalk) client() string {
	if g.r.IntN(4) == 0 {
		return fmt.Sprintf("udp [2001:db8::%x]:4000 > [2001:db8::%x]:7000", 1+g.r.IntN(5), 1+g.r.IntN(2))
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
			g.issued[challenge] = true
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
		for challenge = range g.issued {
			break
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
			return c != "" && (c == g.cookies[client] || g.issued[c])
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

// TestGameLimits has a flood of queries of one prefix, of which the limit by prefix lets some be answered, and one of other datagrams, of which total lets some pass.
func TestGameLimits(t *testing.T) {
	f := loadFlooded(t, "{protect: a2s, limit: {rate: 1/min, per: from/24/56, burst: 10}, total: {rate: 1/min, burst: 20}}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	got := map[string]int{}
	at := func(from int, payload []byte) {
		before := f.counts(t)
		f.answered(t, arrived(t, fmt.Sprintf("udp 198.51.%d.7:4000 > 192.0.2.1:7000", from), payload))
		for i, n := range f.counts(t) {
			if n > before[i] {
				got[f.program.Rules[i].Name]++
			}
		}
	}
	for i := range 1000 {
		at(1, gameInfo(""))
		at(2+i%100, []byte("hello, world"))
	}
	for rule, want := range map[string][2]int{"game:challenge": {10, 12}, "game:queries": {988, 990}, "game": {20, 22}, "game:total": {900, 990}, "game:limit": {0, 90}} {
		if n := got[rule]; n < want[0] || n > want[1] {
			t.Errorf("%d packets are counted at %s, want %v: %v", n, rule, want, got)
		}
	}
}
