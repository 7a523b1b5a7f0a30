// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// arrived returns a frame with a payload from a client to the service. left returns one from the service to the client.
func arrived(t testing.TB, client string, payload []byte) []byte {
	t.Helper()
	return subject.FramesOf(t, fmt.Sprintf("%s payload=0x%x", client, payload))[0].Frame
}

func left(t testing.TB, client string, payload []byte) []byte {
	t.Helper()
	return arrived(t, back(client), payload)
}

// wireguard returns a message of a kind, with the indices that the kind has.
func wireguard(kind byte, sender, receiver uint32) []byte {
	b := make([]byte, map[byte]int{1: 148, 2: 92, 3: 64, 4: 32}[kind])
	b[0] = kind
	switch kind {
	case 1:
		binary.LittleEndian.PutUint32(b[4:], sender)
		b[116] = 1
	case 2:
		binary.LittleEndian.PutUint32(b[4:], sender)
		binary.LittleEndian.PutUint32(b[8:], receiver)
	default:
		binary.LittleEndian.PutUint32(b[4:], receiver)
	}
	return b
}

// quicLong returns a packet of size bytes with a long header of version 1. kind is the packet type in the header.
func quicLong(kind byte, to, from []byte, size int) []byte {
	b := append([]byte{0xc0 | kind<<4, 0, 0, 0, 1, byte(len(to))}, to...)
	b = append(append(b, byte(len(from))), from...)
	return append(b, make([]byte, max(0, size-len(b)))...)
}

func quicShort(to []byte) []byte { return append(append([]byte{0x40}, to...), make([]byte, 24)...) }

// TestToldIdentifiers makes services send identifiers to clients, and then starts a flood. A client with an identifier of WireGuard must be known at
// the address to which the identifier was sent. While the program stores the identifier, the client must also pass from any other address. Packets
// without a valid identifier must not pass.
func TestToldIdentifiers(t *testing.T) {
	const a, b, six = "udp 198.51.100.7:4000 > 192.0.2.1:7000", "udp 203.0.113.9:555 > 192.0.2.1:7000", "udp [2001:db8::7]:4000 > [2001:db8::1]:7000"
	id, other := []byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{1, 2, 3, 4, 5, 6, 7, 9}
	long := bytes.Repeat([]byte{7}, 20)
	programs := map[string]flooded{}
	for _, protocol := range []string{"wireguard", "quic"} {
		programs[protocol] = loadFlooded(t, "{protect: "+protocol+", total: off}")
	}
	for _, c := range []struct {
		name, protocol string
		told           []byte // the payload that the service sends to a; nil: none
		units          uint64 // the units of time that pass
		from           string
		with           []byte
		want           string
	}{
		{"data", "wireguard", wireguard(2, 0x1234, 1), 0, a, wireguard(4, 0, 0x1234), "known"},
		{"data of one who roams", "wireguard", wireguard(2, 0x1234, 1), 0, b, wireguard(4, 0, 0x1234), "proved"},
		{"data over IPv6", "wireguard", wireguard(2, 0x1234, 1), 0, six, wireguard(4, 0, 0x1234), "proved"},
		{"a response to what the host began", "wireguard", wireguard(1, 0x1234, 0), 0, a, wireguard(2, 9, 0x1234), "known"},
		{"a cookie for it", "wireguard", wireguard(1, 0x1234, 0), 0, a, wireguard(3, 0, 0x1234), "known"},
		{"data with another index", "wireguard", wireguard(2, 0x1234, 1), 0, a, wireguard(4, 0, 0x1235), "stray"},
		{"data with the client's index", "wireguard", wireguard(2, 0x1234, 0x77), 0, a, wireguard(4, 0, 0x77), "stray"},
		{"data that is too short", "wireguard", wireguard(2, 0x1234, 1), 0, a, wireguard(4, 0, 0x1234)[:31], "stray"},
		{"reserved bits", "wireguard", wireguard(2, 0x1234, 1), 0, a, append([]byte{4, 0, 1, 0, 0x34, 0x12, 0, 0}, make([]byte, 24)...), "stray"},
		{"data, within 30 s", "wireguard", wireguard(2, 0x1234, 1), 6, a, wireguard(4, 0, 0x1234), "known"},
		{"data, after 35 s", "wireguard", wireguard(2, 0x1234, 1), 9, a, wireguard(4, 0, 0x1234), "stray"},
		{"what is no response tells nothing", "wireguard", wireguard(2, 0x1234, 1)[:91], 0, a, wireguard(4, 0, 0x1234), "stray"},
		{"data tell nothing", "wireguard", wireguard(4, 0, 0x1234), 0, a, wireguard(4, 0, 0x1234), "stray"},
		{"an initiation", "wireguard", nil, 0, a, wireguard(1, 1, 0), ""},
		{"an initiation without a code", "wireguard", nil, 0, a, append(wireguard(1, 1, 0)[:116], make([]byte, 32)...), "stray"},
		{"a response unasked", "wireguard", nil, 0, a, wireguard(2, 1, 1), "stray"},
		{"a game", "wireguard", nil, 0, a, []byte("hello"), "stray"},

		{"a short packet", "quic", quicLong(0, other, id, 1200), 0, a, quicShort(id), "proved"},
		{"a short packet from another address", "quic", quicLong(0, other, id, 1200), 0, b, quicShort(id), "proved"},
		{"a handshake", "quic", quicLong(2, other, id, 300), 0, a, quicLong(2, id, other, 60), "proved"},
		{"a second Initial", "quic", quicLong(0, other, id, 1200), 0, a, quicLong(0, id, other, 100), "proved"},
		{"an Initial after a Retry", "quic", quicLong(3, other, id, 100), 0, a, quicLong(0, id, other, 1200), "proved"},
		{"an Initial and a Handshake packet in one datagram", "quic", quicLong(0, other, id, 1200), 0, a, append(quicLong(0, id, other, 60), quicLong(2, id, other, 1140)...), "proved"},
		{"20 bytes", "quic", quicLong(0, other, long, 1200), 0, a, quicShort(long), "proved"},
		{"4 bytes", "quic", quicLong(0, other, id[:4], 1200), 0, a, quicShort(id[:4]), "proved"},
		{"4 bytes of others", "quic", quicLong(0, other, id[:4], 1200), 0, a, quicShort([]byte{1, 2, 3, 5}), ""},
		{"3 bytes", "quic", quicLong(0, other, id[:3], 1200), 0, a, quicLong(2, id[:3], other, 60), "stray"},
		{"another identifier", "quic", quicLong(0, other, id, 1200), 0, a, quicLong(2, other, id, 60), "stray"},
		{"the client's own", "quic", quicLong(0, other, id, 1200), 0, a, quicShort(other), ""},
		{"negotiation of versions tells nothing", "quic", append([]byte{0xc0, 0, 0, 0, 0, 4, 9, 9, 9, 9, 8}, append(id, 0, 0, 0, 1, 0, 0)...), 0, a, quicLong(2, id, other, 60), "stray"},
		{"a short packet, after 35 s", "quic", quicLong(0, other, id, 1200), 9, a, quicLong(2, id, other, 60), "stray"},
		{"an Initial", "quic", nil, 0, a, quicLong(0, id, other, 1200), ""},
		{"an Initial of version 2", "quic", nil, 0, a, append([]byte{0xd0, 0x6b, 0x33, 0x43, 0xcf}, quicLong(0, id, other, 1200)[5:]...), ""},
		{"an Initial that is too short", "quic", nil, 0, a, quicLong(0, id, other, 1199), "stray"},
		{"an Initial with 7 bytes", "quic", nil, 0, a, quicLong(0, id[:7], other, 1200), "stray"},
		{"an Initial of another version", "quic", nil, 0, a, append([]byte{0xc0, 0, 0, 0, 3}, quicLong(0, id, other, 1200)[5:]...), "stray"},
		{"an Initial without the fixed bit", "quic", nil, 0, a, append([]byte{0x80}, quicLong(0, id, other, 1200)[1:]...), "stray"},
		{"early data", "quic", nil, 0, a, quicLong(1, id, other, 100), ""},
		{"a handshake of nobody", "quic", nil, 0, a, quicLong(2, id, other, 1200), "stray"},
		{"a Retry", "quic", nil, 0, a, quicLong(3, id, other, 1200), "stray"},
	} {
		t.Run(c.protocol+"/"+c.name, func(t *testing.T) {
			f := programs[c.protocol]
			f.forget(t)
			f.forgetLimits(t)
			f.forgetState(t)
			f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
			if c.told != nil {
				f.leave(t, left(t, a, c.told))
				f.useUp(t, a)
			}
			f.age(t, c.units)
			want := "game"
			if c.want != "" {
				want += ":" + c.want
			}
			for i := range 3 { // an earlier packet may change whether a client is known
				if got := f.reason(t, arrived(t, c.from, c.with)); got != want {
					t.Errorf("packet %d is counted at %s, want %s", i, got, want)
				}
			}
		})
	}
}

// useUp sends as many packets of an answered client as may pass because of the answer.
func (f flooded) useUp(t *testing.T, client string) {
	t.Helper()
	for range ir.MayPass {
		if got := f.reason(t, arrived(t, client, []byte("any"))); got != "game:answered" {
			t.Fatalf("a packet of a client that is answered is counted at %s", got)
		}
	}
}

// TestToldLasts checks that an identifier is stored for ten minutes after each use, and for 30 s if it is never used. Packets of a known client are
// uses even without a flood.
func TestToldLasts(t *testing.T) {
	f := loadFlooded(t, "{protect: wireguard, total: off}")
	const client, elsewhere = "udp 198.51.100.7:4000 > 192.0.2.1:7000", "udp 203.0.113.9:555 > 192.0.2.1:7000"
	flood := func(on bool) { f.state(t, uint64(image.Monotonic())+map[bool]uint64{true: uint64(time.Hour)}[on], 0) }
	data := arrived(t, elsewhere, wireguard(4, 0, 7))
	flood(true)
	f.leave(t, left(t, client, wireguard(2, 7, 1)))
	for i := range 5 {
		if got := f.reason(t, data); got != "game:proved" {
			t.Fatalf("packet %d is counted at %s", i, got)
		}
		f.age(t, 135)
	}
	f.reason(t, data)
	f.age(t, 150)
	if got := f.reason(t, data); got != "game:stray" {
		t.Errorf("after eleven minutes a packet is counted at %s", got)
	}
	// A client sends a packet every 4 s without a flood, and then roams during a flood.
	f.forget(t)
	flood(false)
	f.leave(t, left(t, client, wireguard(2, 7, 1)))
	for range 200 {
		f.arrive(t, arrived(t, client, wireguard(4, 0, 7)))
		f.leave(t, left(t, client, wireguard(4, 0, 1)))
		f.age(t, 1)
	}
	flood(true)
	if got := f.reason(t, data); got != "game:proved" {
		t.Errorf("a client that roams after a quarter of an hour is counted at %s", got)
	}
}

// TestToldTooMuch plays an attacker who sends packets with 200 identifiers from forged addresses. Together they must pass no more packets than one
// known client may send. Known clients must not be affected.
func TestToldTooMuch(t *testing.T) {
	for _, protocol := range []string{"wireguard", "quic"} {
		f := loadFlooded(t, "{protect: "+protocol+", known: {rate: 160/s, burst: 160}, total: {rate: 1/h, burst: 1}}")
		f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
		var frames [][]byte
		for i := range 200 {
			client, id := fmt.Sprintf("udp 198.51.100.7:%d > 192.0.2.1:7000", 4000+i), []byte{1, 2, 3, 4, 5, 6, 7, byte(i)}
			if protocol == "quic" {
				f.leave(t, left(t, client, quicLong(0, id[:4], id, 1200)))
				frames = append(frames, arrived(t, fmt.Sprintf("udp 10.1.%d.1:5000 > 192.0.2.1:7000", i), quicShort(id)))
			} else {
				f.leave(t, left(t, client, wireguard(2, uint32(i)+1, 1)))
				frames = append(frames, arrived(t, fmt.Sprintf("udp 10.1.%d.1:5000 > 192.0.2.1:7000", i), wireguard(4, 0, uint32(i)+1)))
			}
		}
		before, began := f.counts(t), time.Now()
		for range 200 {
			for _, frame := range frames {
				f.arrive(t, frame)
			}
		}
		took := time.Since(began).Seconds()
		for i, n := range f.counts(t) {
			// Immediately, 32 sampled packets pass, each of which stands for 16 packets. Then 160 packets per second pass. The bound adds half of
			// that for chance.
			if n, most := int(n-before[i]), (32*16+int(160*took))*3/2; f.program.Rules[i].Name == "game:proved" && (n < 200 || n > most) {
				t.Errorf("%s: %d of %d packets with 200 identifiers pass in %.1f s, want %d at most", protocol, n, 200*len(frames), took, most)
			}
		}
	}
}

// TestKnownAtOnceTooMuch checks a client that is known immediately because it has an identifier. If it exceeds its limit, it must not be known again
// until its packets are within the limit.
func TestKnownAtOnceTooMuch(t *testing.T) {
	f := loadFlooded(t, "{protect: wireguard, known: {rate: 160/s, burst: 160}, total: off}")
	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	f.leave(t, left(t, client, wireguard(2, 7, 1)))
	before := f.counts(t)
	data := arrived(t, client, wireguard(4, 0, 7))
	for range 20_000 {
		f.arrive(t, data)
	}
	passed := map[string]int{}
	for i, n := range f.counts(t) {
		passed[f.program.Rules[i].Name] = int(n - before[i])
	}
	// Each of the two limits lets 32 sampled packets pass at once, and then 10 per second.
	if n := passed["game:known"] + passed["game:proved"]; n < 200 || n > 4000 {
		t.Errorf("%d of 20,000 packets pass: %v", n, passed)
	}
}

// TestDatagramsRandom sends random datagrams from a service and to the service. Their forms are valid, nearly valid or invalid. The program must
// decide like ir.Eval with the identifiers that packet.Datagrams reads, both in its entry and in general().
func TestDatagramsRandom(t *testing.T) {
	r := testutil.Random(t)
	for _, protocol := range []packet.Datagrams{packet.WireGuard, packet.QUIC} {
		t.Run(protocol.String(), func(t *testing.T) {
			f := loadFlooded(t, "{protect: "+protocol.String()+", known: 10000000/s, limit: {rate: 1/day, per: from/8/8, burst: 1}, total: 10000000/s}")
			begin := map[packet.Datagrams][]byte{packet.WireGuard: wireguard(1, 1, 0), packet.QUIC: quicLong(0, make([]byte, 8), nil, 1200)}[protocol]
			f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
			for _, from := range []string{"198.51.1.1:1 > 192.0.2.1", "[2001:db8::1]:1 > [2001:db8::1]"} { // uses up the packets that may pass without proof
				f.arrive(t, arrived(t, "udp "+from+":7000", begin))
			}
			reasons := map[string]int{}
			for range testutil.Scaled(20, 10_000) {
				f.forget(t)
				f.forgetState(t)
				f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
				f.tell(t, r, protocol, 1000, reasons)
			}
			for _, name := range []string{"game:known", "game:proved", "game:stray", "game:limit"} {
				if reasons[name] < 500 && !(protocol == packet.QUIC && name == "game:known") {
					t.Errorf("%d packets are decided by %s, want more for a test of it: %v", reasons[name], name, reasons)
				}
			}
			t.Logf("%v", reasons)
		})
	}
}

// tell sends random datagrams from the service, and then to the service.
func (f flooded) tell(t *testing.T, r *rand.Rand, protocol packet.Datagrams, packets int, reasons map[string]int) {
	t.Helper()
	told, toldTo, known, length, began := map[[packet.MostID]byte]bool{}, map[string]bool{}, map[string]bool{}, 0, image.Monotonic()/replyUnit
	answered := map[string]int{} // the number of packets of a client that may pass because of an answer
	var ids [][]byte
	client := func() string {
		if r.IntN(4) == 0 {
			return fmt.Sprintf("udp [2001:db8:%x::1]:4000 > [2001:db8::1]:7000", r.IntN(9))
		}
		return fmt.Sprintf("udp 198.51.%d.%d:4000 > 192.0.2.1:7000", r.IntN(4), r.IntN(9))
	}
	for range 10 {
		payload, who := randomDatagram(r, protocol, nil), client()
		f.leave(t, left(t, who, payload))
		answered[who] = ir.MayPass
		if id, ok := protocol.Chosen(payload); ok {
			told[padded(id)] = true
			toldTo[who+fmt.Sprint(padded(id))] = protocol == packet.WireGuard
			if length == 0 || protocol.Sizes(payload) {
				length = len(id)
			}
			ids = append(ids, id)
		}
	}
	for range packets {
		who, tag := client(), ""
		if r.IntN(20) == 0 {
			tag = " vlan=5"
		}
		frame := arrived(t, who+tag, randomDatagram(r, protocol, ids))
		if r.IntN(20) == 0 {
			frame = frame[:14+r.IntN(len(frame)-13)]
		}
		pkt := packet.Decode(frame)
		verdict, reason := f.program.Eval(&pkt, ir.World{
			Calm: func(int, *packet.Packet) bool { return false },
			Over: func(int, *packet.Packet) bool { return true },
			Known: func(pkt *packet.Packet) bool {
				id, ok := protocol.Named(pkt.Payload, length)
				return known[who] || ok && toldTo[who+fmt.Sprint(padded(id))]
			},
			Answered: func(int, *packet.Packet) bool { return answered[who] > 0 },
			Proved: func(_ int, pkt *packet.Packet) bool {
				id, ok := protocol.Named(pkt.Payload, length)
				return ok && told[padded(id)]
			},
		})
		want := f.program.ReasonName(reason)
		if !strings.HasPrefix(want, "game") { // it fails a check, or is no datagram
			want = "default"
		}
		passes, got, asked := false, want, r.IntN(4)
		known[who] = known[who] || want == "game:known" && asked > 0
		if want == "game:answered" && asked > 0 {
			answered[who]--
		}
		if asked > 1 {
			passes = f.arrive(t, frame)
		} else {
			a, err := f.AskAt(datapath.Question{Frame: frame, Charge: asked == 1})
			if err != nil {
				t.Fatal(err)
			}
			passes, got = ir.Verdict(a.Verdict) == ir.Pass, "default"
			if at := int(a.Slot) - image.SlotRules; at >= 0 && at < len(f.program.Rules) {
				got = f.program.Rules[at].Name
			}
		}
		if image.Monotonic()/replyUnit > began+ir.PassWait/ir.KnownUnit {
			return // the identifiers may have expired
		}
		if reasons[want]++; got != want || passes != (verdict == ir.Pass) {
			t.Fatalf("%x, told %x, %d bytes: it passes is %t, at %s; ir.Eval says %s", frame, ids, length, passes, got, want)
		}
	}
}

// padded returns an identifier padded with zeros. Identifiers that differ only in the number of zeros at the end count as equal.
func padded(id []byte) (b [packet.MostID]byte) {
	copy(b[:], id)
	return b
}

// randomDatagram returns a message of a random kind with random identifiers, most often one of ids. Some messages are cut off or have a changed
// byte.
func randomDatagram(r *rand.Rand, protocol packet.Datagrams, ids [][]byte) (b []byte) {
	id := func(size int) []byte {
		if len(ids) > 0 && r.IntN(2) == 0 {
			return ids[r.IntN(len(ids))]
		}
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(r.IntN(3))
		}
		return b
	}
	if protocol == packet.WireGuard {
		kind := byte(1 + r.IntN(4))
		b = wireguard(kind, 0, 0)
		at := 4
		if kind == 2 && len(ids) > 0 {
			at = 8
		}
		copy(b[at:], id(4))
		if kind == 4 {
			b = append(b, make([]byte, 16*r.IntN(3))...)
		}
	} else {
		size := []int{0, 3, 4, 8, 8, 8, 12, 20, 21}[r.IntN(9)]
		own := []int{0, 5, 8, 20, 21}[r.IntN(5)]
		if len(ids) == 0 {
			size, own = own, size
		}
		length := []int{20, 60, 200, 1199, 1200, 1300}[r.IntN(6)]
		b = quicLong(byte(r.IntN(4)), id(size), id(own), length)
		switch r.IntN(8) {
		case 0, 1:
			b = quicShort(id(size))
		case 2:
			binary.BigEndian.PutUint32(b[1:], []uint32{0, 2, 0x6b3343cf}[r.IntN(3)])
		}
	}
	if r.IntN(8) == 0 {
		b[r.IntN(min(len(b), 30))] ^= 1 << r.IntN(8)
	}
	if r.IntN(8) == 0 {
		b = b[:1+r.IntN(len(b))]
	}
	return b
}

// TestKnownRate checks known clients and senders with an identifier that send as fast as possible during a flood. After the burst, packets must pass
// at the rate of the limit for some seconds.
func TestKnownRate(t *testing.T) {
	const rate = 3200
	for protocol, lines := range map[string][2]string{
		"wireguard": {"udp 198.51.100.7:4000 > 192.0.2.1:7000", "udp 203.0.113.9:555 > 192.0.2.1:7000"}, // the client's own address, and another one
		"quic":      {"udp 203.0.113.9:555 > 192.0.2.1:7000"},
	} {
		for _, from := range lines {
			if from == "" {
				continue
			}
			f := loadFlooded(t, fmt.Sprintf("{protect: %s, known: {rate: %d/s, burst: 160}, total: {rate: 1/h, burst: 1}}", protocol, rate))
			f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
			id := []byte{1, 2, 3, 4, 5, 6, 7, 8}
			told, data := wireguard(2, 7, 1), wireguard(4, 0, 7)
			if protocol == "quic" {
				told, data = quicLong(0, id[:4], id, 1200), quicShort(id)
			}
			f.leave(t, left(t, "udp 198.51.100.7:4000 > 192.0.2.1:7000", told))
			frame := arrived(t, from, data)
			flood := func(lasts time.Duration) {
				for began := time.Now(); time.Since(began) < lasts; {
					for range 100 {
						f.arrive(t, frame)
					}
				}
			}
			flood(300 * time.Millisecond) // the burst
			before, began := f.counts(t), time.Now()
			flood(2 * time.Second)
			took := time.Since(began).Seconds()
			for i, n := range f.counts(t) {
				name := f.program.Rules[i].Name
				if got := float64(n-before[i]) / took; (name == "game:known" || name == "game:proved") && got > 1.3*rate {
					t.Errorf("%s from %s: %.0f packets a second pass at %s, want about %d", protocol, from, got, name, rate)
				} else if got > 0 {
					t.Logf("%s from %s: %s %.0f/s", protocol, from, name, got)
				}
			}
		}
	}
}

// TestProtocolsBesideEachOther loads services of all protocols, with and without the optional parts of their rules. It sends stray packets to each
// service. The rule of that service must count them, both in the entry and in general().
func TestProtocolsBesideEachOther(t *testing.T) {
	testutil.RequireRoot(t)
	stray := map[string][]byte{"quic": quicLong(2, make([]byte, 8), nil, 60), "wireguard": wireguard(4, 0, 9)}
	for _, keys := range []string{"", ", observe: true", ", total: off", ", limit: off", ", observe: true, total: off"} {
		for _, others := range [][2]string{{"quic", "wireguard"}, {"wireguard", "quic"}, {"quic", "quic"}, {"wireguard", "generic"}} {
			s := subject.Lower(t, fmt.Sprintf("default: drop\nservices:\n  - {name: game, port: udp/7000, udp: {protect: %s%s}}\n  - {name: other, port: udp/7001, udp: {protect: %s}}\n", others[0], keys, others[1]))
			x, err := xdpgen.Generate(s.Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
			if err != nil {
				t.Fatal(err)
			}
			f := flooded{talker{s.Load(t, x)}, s.Program}
			memory, release, err := f.Memory(image.FloodStates)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				binary.NativeEndian.PutUint64(memory[image.FloodStates][i*image.FloodStateSize:], uint64(image.Monotonic())+uint64(time.Hour))
			}
			release()
			for i, protocol := range others {
				if stray[protocol] == nil {
					continue
				}
				want := []string{"game", "other"}[i] + ":stray"
				if i == 0 && strings.Contains(keys, "observe") {
					want = "game" // it is counted there, too, and passes
				}
				for client := range 3 { // a packet of the same client would come again
					before := f.counts(t)
					f.arrive(t, arrived(t, fmt.Sprintf("udp 198.51.100.7:%d > 192.0.2.1:%d", 4000+client, 7000+i), stray[protocol]))
					var at []string
					for n, count := range f.counts(t) {
						if count > before[n] {
							at = append(at, f.program.Rules[n].Name)
						}
					}
					if len(at) == 0 || at[len(at)-1] != want {
						t.Errorf("%v%s: a stray packet of service %d is counted at %v, want %s", others, keys, i, at, want)
					}
				}
			}
		}
	}
}
