// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

var identified = map[packet.Datagrams]string{
	packet.WireGuard: "default: drop\nreplies: drop\nchecks: off\nservices: [{name: vpn, port: udp/51820, udp: {protect: wireguard}}]\n",
	packet.QUIC:      "default: drop\nreplies: drop\nchecks: off\nservices: [{name: web, port: udp/443, udp: {protect: quic}}]\n",
}

// randomDatagram returns a random payload, which is often a datagram of one of the protocols, or similar to one.
func randomDatagram(r *rand.Rand) []byte {
	pick := func(list ...int) int { return list[r.IntN(len(list))] }
	b := make([]byte, pick(20, 21, 25, 26, 31, 32, 33, 64, 92, 148, 147, 200, 1199, 1200, 1250))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if r.IntN(2) == 0 {
		binary.LittleEndian.PutUint32(b, uint32(r.IntN(6)))
		if r.IntN(4) == 0 && len(b) >= 132 {
			clear(b[116:132])
		}
		return b
	}
	b[0] = byte(pick(0x40, 0x80, 0xc0, 0xd0, 0xe0, 0x00)) | b[0]&0x1f
	binary.BigEndian.PutUint32(b[1:], uint32(pick(0, 1, 1, 2, 0x6b3343cf)))
	b[5] = byte(pick(0, 3, 4, 7, 8, 9, 13, 19, 20, 21))
	if at := 6 + int(b[5]); at < len(b) {
		b[at] = byte(pick(0, 8, 20, 21))
	}
	return b
}

// TestDatagrams compares the formulas of datagrams with identifiers with packet.Datagrams: whether a datagram begins a conversation, and the key of
// its identifier.
func TestDatagrams(t *testing.T) {
	requireSolver(t)
	r, _ := subject.Seeded(t)
	k := kind{proto: protoUDP}
	for protocol, text := range identified {
		s, err := subjectOf("policy.yaml", "devices: [eth0]\n"+text, false)
		if err != nil {
			t.Fatal(err)
		}
		c := smt.New()
		w := *s.world
		w.decoded = decode(c, newFrame(c, k.known(c)), k)
		g := w.datagram(0)
		begins, proved := g.begins(), g.proved()
		var starts, named int
		for range 2000 {
			payload := randomDatagram(r)
			size := []int{0, 3, 4, 8, 20}[r.IntN(5)] // length of the service's identifiers
			model := s.modelOf(k, udpFrame(payload))
			var key []uint64
			model.Apply = func(name string, args []uint64) uint64 {
				switch {
				case name == g.state(floodIDLength).Name && args[0] == floodIDLength:
					return uint64(size)
				case name == g.state(floodIDLength).Name && args[0] >= floodIDMask:
					var mask [24]byte
					for i := range size {
						mask[i] = 0xff
					}
					return binary.LittleEndian.Uint64(mask[args[0]-floodIDMask:])
				case name == "is_reply":
					key = append(key, args[0])
				}
				return ^uint64(0) // all bits of the filter are set, and all identifiers were issued
			}
			model.Vars["random"] = 1
			if got, want := model.Eval(begins) == 1, protocol.Begins(payload); got != want {
				t.Fatalf("%s %x: it begins: %t, the formula says %t", protocol, payload, want, got)
			}
			id, ok := protocol.Named(payload, size)
			got := model.Eval(proved) == 1
			if got != ok {
				t.Fatalf("%s %x, of %d bytes: it has an identifier: %t, the formula says %t", protocol, payload, size, ok, got)
			}
			var words [24]byte
			copy(words[:], id)
			word := func(i int) uint64 { return binary.LittleEndian.Uint64(words[8*i:]) }
			if want := word(0) + word(1)*idFactor1 + word(2)*idFactor2; ok && !slices.Contains(key, want) {
				t.Fatalf("%s %x: the key of %x is %x, the formula has %x", protocol, payload, id, want, key)
			}
			starts, named = starts+int(flag(protocol.Begins(payload))), named+int(flag(ok))
		}
		if starts < 10 || named < 10 {
			t.Errorf("%s: %d begin, %d have an identifier", protocol, starts, named)
		}
	}
}

// udpFrame is a frame to UDP port 443.
func udpFrame(payload []byte) []byte {
	b := make([]byte, 42+len(payload))
	b[12], b[14], b[23], b[37] = 8, 0x45, 17, 187
	b[36] = 1
	binary.BigEndian.PutUint16(b[16:], uint16(28+len(payload)))
	binary.BigEndian.PutUint16(b[38:], uint16(8+len(payload)))
	copy(b[42:], payload)
	return b
}

// TestIdentifiers proves services whose datagrams have identifiers. It also finds frames that are decided by an identifier, so that the proof is not
// empty. It makes mutants of the code that only UDP packets reach: FLOODWALL_MUTANTS mutants of each service.
func TestIdentifiers(t *testing.T) {
	requireSolver(t)
	n := 0
	if text := os.Getenv("FLOODWALL_MUTANTS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for protocol, text := range identified {
		t.Run(protocol.String(), func(t *testing.T) {
			s, err := subjectOf("policy.yaml", "devices: [eth0]\n"+text, false)
			if err != nil {
				t.Fatal(err)
			}
			k, l := kind{proto: protoUDP}, smt.Limits{Time: limit}
			if r := s.Kind(context.Background(), k, l); r.Answer != smt.Unsatisfiable {
				t.Fatalf("%s: %s: %x %q", r.Answer, r.Why, r.Frame, r.State)
			}
			q, err := s.query(k, s.entry)
			if err != nil {
				t.Fatal(err)
			}
			c, g := q.c, q.machine.world.datagram(0)
			here := c.And(q.decided, q.meaning.has(ir.Match{Field: packet.DPort, Values: s.Program.Floods[0].Ports}), q.machine.world.promises(c))
			for what, is := range map[string]*smt.Term{"proved": g.proved(), "no proof, but begins": c.And(c.Not(g.proved()), g.begins()), "stray": c.And(c.Not(g.proved()), c.Not(g.begins()))} {
				if answer, _, err := c.Solve(context.Background(), l, c.And(here, is)); answer != smt.Satisfiable {
					t.Errorf("no frame is decided of which is so: %s: %s, %v", what, answer, err)
				}
			}
			mutateUDP(t, s, l, n)
		})
	}
}

func mutateUDP(t *testing.T, s *Subject, l smt.Limits, n int) {
	t.Helper()
	reached, err := s.reached()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(reached, func(_ int, kinds []kind) bool {
		return slices.ContainsFunc(kinds, func(k kind) bool { return k.proto != protoUDP || k.v6 })
	})
	r, places := rand.New(rand.NewPCG(3, 3)), slices.Sorted(maps.Keys(reached))
	start := time.Now()
	counts, harmless, gaveUp, err := makeMutants(t.Context(), n, func() (tried, bool) {
		list := mutantsOf(s.entry, places[r.IntN(len(places))])
		if len(list) == 0 {
			return tried{}, false
		}
		m := list[r.IntN(len(list))]
		return tried{m.class, m.text, func() (smt.Answer, string) {
			return s.refute(t.Context(), l, m, map[int][]kind{m.at: reached[m.at][:1]}), ""
		}}, true
	})
	if err != nil || len(gaveUp) > 0 {
		t.Errorf("%v, given up: %q", err, gaveUp)
	}
	for class, c := range counts {
		t.Logf("%s %+v", class, *c)
	}
	t.Logf("harmless: %s\n%d instructions, %v", strings.Join(harmless, "\n"), len(places), time.Since(start))
}
