// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// gameMessage returns a message of a game server or its client.
func gameMessage(kind byte, rest string) []byte {
	return append([]byte{0xff, 0xff, 0xff, 0xff, kind}, rest...)
}

// gameInfo returns a query for INFO with a challenge. "" means no challenge.
func gameInfo(challenge string) []byte { return gameMessage('T', "Source Engine Query\x00"+challenge) }

// answered sends a frame through the entry. It returns the payload of the answer, if there is one. The answer must go from the service to the client,
// with lengths and checksums as gopacket computes them.
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

// asked does the same as answered. It also returns the rule that counts the frame.
func (f flooded) asked(t *testing.T, frame []byte) (payload []byte, passes bool, at string) {
	t.Helper()
	before := f.counts(t)
	payload, passes = f.answered(t, frame)
	at = "default"
	for i, n := range f.counts(t) {
		if n > before[i] {
			at = strings.TrimPrefix(f.program.Rules[i].Name, "game:")
		}
	}
	return payload, passes, at
}

// turned sends a challenge out. The program for outgoing packets must convert it to a query from the receiver of the challenge.
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

// wellFormed decodes a frame with a datagram. Its lengths and checksums must be those that gopacket computes.
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
	if want := b.Bytes(); !bytes.Equal(want[:min(len(want), len(frame))], frame) { // gopacket pads short frames
		t.Fatalf("it is not as gopacket makes it:\n%s%v", cmp.Diff(want, frame), p)
	}
	return packet.Decode(frame)
}

// noChecksum is a UDP layer without a checksum.
type noChecksum struct{ *layers.UDP }

// SerializeTo writes the header.
func (n noChecksum) SerializeTo(b gopacket.SerializeBuffer, o gopacket.SerializeOptions) error {
	o.ComputeChecksums = false
	return n.UDP.SerializeTo(b, o)
}

// forgetAnswers removes all stored answers. noQueries removes all queries that wait for a challenge.
func (f flooded) forgetAnswers(t *testing.T) { f.forgetAll(t, image.GameAnswers) }
func (f flooded) noQueries(t *testing.T)     { f.forgetAll(t, image.GameQueries) }

// forgetAll empties a map.
func (f flooded) forgetAll(t *testing.T, name string) {
	t.Helper()
	m := f.Map(name)
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

// ageAnswers makes the stored answers of the service older by a time.
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

// TestGameQueries plays a client that queries a game server during a flood and follows the protocol. The client must get a challenge and repeat its
// query with it. Then it must get the stored answer of the server, or its query must reach the server.
func TestGameQueries(t *testing.T) {
	for name, client := range gameClients {
		t.Run(name, func(t *testing.T) {
			f := loadFlooded(t, "{protect: a2s, total: off}")
			f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
			ask := func(from string, query []byte) ([]byte, string) {
				t.Helper()
				answer, passes, at := f.asked(t, arrived(t, from, query))
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
			// When the answer is old, one query per second must reach the server at first. After a minute, every query must.
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
			// If the server answers a forwarded query with a challenge of its own, the program sends it the query again, with that challenge.
			for _, with := range []func(string) []byte{gameInfo, func(c string) []byte { return gameMessage('U', c) }, func(c string) []byte { return gameMessage('V', c) }} {
				f.forgetAnswers(t)
				f.noQueries(t)
				if _, at := ask(client, with(cookie)); at != "proved" {
					t.Errorf("a query with the challenge is counted at %s", at)
				}
				f.turned(t, left(t, toClient, gameMessage('A', "\x05\x06\x07\x08")), with("\x05\x06\x07\x08"))
				f.leave(t, left(t, toClient, gameMessage('A', "\x05\x06\x07\x08"))) // a second challenge passes to the client
			}
			// Several simultaneous queries are repeated in their order. A challenge of another server passes to the client.
			f.noQueries(t)
			ask(client, gameInfo(cookie))
			ask(client, gameMessage('V', cookie))
			f.leave(t, left(t, strings.NewReplacer("192.0.2.1", "192.0.2.2", "db8::1", "db8::2").Replace(toClient), gameMessage('A', "\x05\x06\x07\x08")))
			f.turned(t, left(t, toClient, gameMessage('A', "\x05\x06\x07\x08")), gameInfo("\x05\x06\x07\x08"))
			f.turned(t, left(t, toClient, gameMessage('A', "\x05\x06\x07\x08")), gameMessage('V', "\x05\x06\x07\x08"))
			f.leave(t, left(t, toClient, gameMessage('A', "\x05\x06\x07\x08")))
			// An answer belongs to the oldest query of its kind. That query must then no longer wait for a challenge.
			f.noQueries(t)
			ask(client, gameInfo(cookie))
			f.leave(t, left(t, toClient, info))
			f.ageAnswers(t, 2*time.Minute)
			ask(client, gameMessage('U', cookie))
			f.turned(t, left(t, toClient, gameMessage('A', "\x05\x06\x07\x08")), gameMessage('U', "\x05\x06\x07\x08"))
			// The server's own challenge, to a client that has none from the program.
			f.leave(t, left(t, strings.Split(other, " vlan")[0], gameMessage('A', "\x01\x02\x03\x04")))
			if _, at := ask(other, gameInfo("\x01\x02\x03\x04")); at != "proved" {
				t.Errorf("a query with the server's own challenge is counted at %s", at)
			}
			challenged(elsewhere, gameInfo("\x01\x02\x03\x04"))
			challenged(other, gameInfo("\x01\x02\x03\x05"))
			// The answer to a player who connects begins like a challenge, and is the same for all players.
			f.leave(t, left(t, strings.Split(other, " vlan")[0], gameMessage('A', "00000000 1234567 3 9 0 0\n")))
			f.leave(t, left(t, strings.Split(other, " vlan")[0], gameMessage('A', "3IOZ1234")))
			challenged(other, gameInfo("0000"))
			challenged(other, gameInfo("3IOZ"))
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

// TestGameAnswersKept sends packets from a server. They must not be stored as answers.
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
	for i := range 2000 { // answers of more services than the map can store
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

// TestGameLimits sends a flood of queries from one prefix. Each query without a proof must get a challenge. As far as the limit by prefix allows,
// queries with a challenge must be answered. As far as the limit total allows, other datagrams must pass.
func TestGameLimits(t *testing.T) {
	f := loadFlooded(t, "{protect: a2s, limit: {rate: 1/min, per: from/24/56, burst: 10}, total: {rate: 1/min, burst: 20}}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	got := map[string]int{}
	at := func(from int, payload []byte) (answer []byte) {
		before := f.counts(t)
		answer, _ = f.answered(t, arrived(t, fmt.Sprintf("udp 198.51.%d.7:4000 > 192.0.2.1:7000", from), payload))
		for i, n := range f.counts(t) {
			if n > before[i] {
				got[f.program.Rules[i].Name]++
			}
		}
		return answer
	}
	for i := range 1000 {
		challenge := at(1, gameInfo(""))
		at(1, gameInfo(string(challenge[5:])))
		at(2+i%100, []byte("hello, world"))
	}
	for rule, want := range map[string][2]int{
		"game:challenge": {1000, 1000}, "game:proved": {10, 12}, "game:queries": {988, 990}, "game": {10, 12}, "game:again": {0, 12}, "game:total": {900, 990}, "game:limit": {0, 90},
	} {
		if n := got[rule]; n < want[0] || n > want[1] {
			t.Errorf("%d packets are counted at %s, want %v: %v", n, rule, want, got)
		}
	}
}

// TestGameAnswersRate checks a CPU that has reached its limit of answers. Queries must still be counted, but must not be answered until the limit
// allows the next answer.
func TestGameAnswersRate(t *testing.T) {
	f := loadFlooded(t, "{protect: a2s, total: off}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	usual := arrived(t, "udp 198.51.100.7:4000 > 192.0.2.1:7000", gameInfo(""))
	tags := []byte{0x81, 0, 0, 3, 0x81, 0, 0, 4} // VLAN tags, with which general() decides the frame
	for _, frame := range [][]byte{usual, slices.Insert(slices.Clone(usual), 12, tags...)} {
		for _, spent := range []bool{false, true, false} {
			next := make([]uint64, ebpf.MustPossibleCPU())
			for cpu := range next {
				if spent {
					next[cpu] = uint64(image.Monotonic()) + uint64(time.Hour)
				}
			}
			if err := f.Map("answer_times").Put(uint32(0), next); err != nil {
				t.Fatal(err)
			}
			before := f.counts(t)
			answer, passes := f.answered(t, frame)
			counted := ""
			for i, n := range f.counts(t) {
				if n > before[i] {
					counted += f.program.Rules[i].Name
				}
			}
			if (answer == nil) != spent || passes || counted != "game:challenge" {
				t.Errorf("%x, spent %t: answered with %x, it passes is %t, counted at %q", frame, spent, answer, passes, counted)
			}
		}
	}
}

// TestGameCookieEdge sends a cookie of a new unit of time to the entry while the entry's coarse clock is still in the previous unit.
func TestGameCookieEdge(t *testing.T) {
	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	f := loadFlooded(t, "{protect: a2s, known: 10000000/s, limit: off, total: {rate: 1/h, burst: 1}}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	memory, release, err := f.Memory(image.Tick)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	tick := memory[image.Tick]
	const ticks = 1<<image.TickBits - 1
	plain := slices.Insert(arrived(t, client, gameInfo("")), 12, 0x81, 0, 0, 3, 0x81, 0, 0, 4) // for general(), which has the exact clock
	challenge, _ := f.answered(t, plain)
	frame := arrived(t, client, gameInfo(string(challenge[len(challenge)-4:])))
	edge := uint64(image.Monotonic()) >> 36 << 36
	for shown := false; !shown; {
		f.answered(t, plain) // the clock is of this tick
		late := edge - 1<<20 | binary.NativeEndian.Uint64(tick)&ticks
		binary.NativeEndian.PutUint64(tick, late)
		if err := f.Map("answer_times").Put(uint32(0), make([]uint64, ebpf.MustPossibleCPU())); err != nil {
			t.Fatal(err)
		}
		_, passes := f.answered(t, frame)
		if shown = binary.NativeEndian.Uint64(tick) == late; shown && !passes {
			t.Error("a query with a cookie does not pass")
		}
	}
}

// TestGameAnswersForwarded sends forwarded packets with an answer of a game server. They must be stored if a query of the client with a challenge has
// reached the server. They must not be stored if the packet leaves through the device by which it arrived.
func TestGameAnswersForwarded(t *testing.T) {
	const client = "udp 198.51.100.7:4000 > 192.0.2.1:7000"
	const at = 1 // the device of a test run: lo
	for _, c := range []struct {
		asked, challenged bool
		from              uint32 // the device where it came in; 0: this host sends it
		kept              bool
	}{{false, false, 0, true}, {false, false, 7, false}, {true, false, 7, true}, {true, true, 7, true}, {true, true, at, false}} {
		f := loadFlooded(t, "{protect: a2s, total: off}")
		f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
		if c.asked {
			challenge, _ := f.answered(t, arrived(t, client, gameInfo("")))
			if _, passes := f.answered(t, arrived(t, client, gameInfo(string(challenge[5:])))); !passes {
				t.Fatal("a query with a challenge does not pass")
			}
		}
		if c.challenged { // the server sends a challenge first
			f.turned(t, left(t, client, gameMessage('A', "1234")), gameInfo("1234"))
		}
		var skb [192]byte // struct __sk_buff of linux/bpf.h
		binary.NativeEndian.PutUint32(skb[36:], c.from)
		frame := left(t, client, gameMessage('I', "x"))
		o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: skb}
		if _, err := f.Egress().Run(&o); err != nil {
			t.Fatal(err)
		}
		var key, value []byte
		if kept := f.Map(image.GameAnswers).Iterate().Next(&key, &value); kept != c.kept {
			t.Errorf("%+v: it is kept is %t", c, kept)
		}
	}
}
