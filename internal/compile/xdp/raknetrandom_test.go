// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRakNetRandom sends random datagrams to a RakNet server during a flood. Their forms are valid, nearly valid or invalid. Their cookies are the
// client's, those of other clients, or the server's. The program must decide like ir.Eval, both in its entry and in general(). Its answers must not
// be longer than the requests, and the server must not get a cookie of the program.
func TestRakNetRandom(t *testing.T) {
	r := testutil.Random(t)
	f := loadFlooded(t, "{protect: raknet, known: 10000000/s, limit: off, total: {rate: 1/h, burst: 1}}")
	reasons := map[string]int{}
	f.talks(t, reasons, []string{"game:known", "game:proved", "game:challenge", "game:total"}, func() func() {
		f.forgetAll(t, image.RakNetRequests)
		g := &rakNetTalk{flooded: f, r: r, cookies: map[string]string{}, versions: map[string]byte{}, known: map[string]bool{}}
		g.begin(t)
		return func() { g.send(t, reasons) }
	})
}

// rakNetTalk has the state of RakNet servers and their clients.
type rakNetTalk struct {
	flooded
	r        *rand.Rand
	cookies  map[string]string // by client
	versions map[string]byte   // the version of the cookie
	known    map[string]bool   // clients that have opened a connection
}

func (g *rakNetTalk) client() string { return talkClient(g.r) }

// begin uses up the limit total. It makes the servers send their properties and makes clients request cookies. Some of these clients open
// connections.
func (g *rakNetTalk) begin(t *testing.T) {
	t.Helper()
	for _, from := range []string{"198.51.1.1:1 > 192.0.2.1", "[2001:db8::1]:1 > [2001:db8::1]"} {
		g.answered(t, arrived(t, "udp "+from+":7000", []byte("hello")))
	}
	for i := range 2 {
		for _, client := range []string{"udp 198.51.100.99:1 > 192.0.2.%d:7000", "udp [2001:db8::99]:1 > [2001:db8:1::%d]:7000"} {
			g.leave(t, left(t, fmt.Sprintf(client, i+1), reply1("", 1492)))
		}
	}
	for i := range 8 {
		client, version := g.client(), byte(g.r.IntN(packet.RakNetVersions))
		if g.known[client] {
			continue
		}
		answer, _ := g.answered(t, arrived(t, client, request1(version, 32+g.r.IntN(1400))))
		g.cookies[client], g.versions[client] = string(answer[26:30]), version
		if i%3 > 0 {
			continue
		}
		six := g.r.IntN(2) == 0
		g.passed(t, arrived(t, client, request2(g.cookies[client], six, 1200)))
		g.turned(t, left(t, client, reply1("1234", 1492)), request2("1234", six, 1200))
		g.known[client] = true
	}
}

// datagram returns a request with a random cookie, or sometimes another datagram.
func (g *rakNetTalk) datagram(client string) []byte {
	cookie := g.cookies[client]
	switch g.r.IntN(6) {
	case 0:
		cookie = fmt.Sprintf("%04d", g.r.IntN(1e4))
	case 1:
		cookie = g.cookies[g.client()]
	case 2:
		b := []byte(cookie)
		if len(b) > 0 {
			b[g.r.IntN(4)] ^= 1 << g.r.IntN(8)
		}
		cookie = string(b)
	}
	b := request2(cookie, g.r.IntN(2) == 0, uint16(g.r.Uint32()))
	switch g.r.IntN(8) {
	case 0, 1:
		b = request1(byte(g.r.IntN(20)), 18+g.r.IntN(1440))
	case 2:
		b = append([]byte{0x80 | byte(g.r.Uint32())}, b...)
	case 3:
		b[0] = byte(g.r.IntN(32))
	}
	if g.r.IntN(8) == 0 {
		b[g.r.IntN(min(len(b), 40))] ^= 1 << g.r.IntN(8)
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
func (g *rakNetTalk) send(t *testing.T, reasons map[string]int) {
	t.Helper()
	client := g.client()
	frame := arrived(t, client, g.datagram(client))
	if g.r.IntN(20) == 0 {
		frame = frame[:14+g.r.IntN(len(frame)-13)]
	}
	pkt := packet.Decode(frame)
	named, _ := packet.RakNet.Named(pkt.Payload, 0)
	ours := len(named) > 0 && string(named) == g.cookies[client]
	verdict, reason := g.program.Eval(&pkt, g.flooding(ir.World{
		Known:  func(*packet.Packet) bool { return g.known[client] },
		Proved: func(int, *packet.Packet) bool { return ours },
		Proves: func(int, *packet.Packet) bool { return ours },
	}))
	want := g.program.ReasonName(reason)
	reasons[want]++
	if g.r.IntN(2) == 0 {
		g.decidesAs(t, client, frame, verdict, want)
		return
	}
	answer, passes := g.answered(t, frame)
	if passes != (verdict == ir.Pass) || (answer != nil) != verdict.Answers() || len(answer) > len(pkt.Payload) {
		t.Fatalf("%x from %s: it passes is %t, answered with %x; ir.Eval says %s at %s", frame, client, passes, answer, verdict, want)
	}
	switch {
	case verdict == ir.Challenge && g.cookies[client] != "" && pkt.Payload[17] == g.versions[client] && string(answer[26:30]) != g.cookies[client]:
		t.Fatalf("%s gets the cookie %x, and got %x", client, answer[26:30], g.cookies[client])
	case passes && ours:
		isFirstOf(t, g.passed(t, frame), pkt.Payload, g.versions[client])
	case passes:
		o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+100), Repeat: 1}
		if _, err := g.Native().Run(&o); err != nil || !bytes.Equal(o.DataOut[:len(frame)], frame) {
			t.Fatalf("%x from %s passes as %x, %v", frame, client, o.DataOut, err)
		}
	}
}
