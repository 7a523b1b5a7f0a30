// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// udp53 and tcp53 are values of packet.DPort.
const (
	udp53 = packet.PortUDP + 53
	tcp53 = 53
)

// guarded is a loaded program that passes queries of verified clients to port 53, and drops all other packets.
type guarded struct {
	*datapath.Program
	slot uint32 // the counter of responses above the limit
}

// guarding sets the name, the ports and the limit of a guard of port 53, and returns a program with the guard.
func guarding(g ir.Guard, limits ...ir.Limit) *ir.Program {
	g.Service = "dns"
	g.Ports = []ir.Range{{First: tcp53, Last: tcp53}, {First: udp53, Last: udp53}}
	g.Out = len(limits) - 1
	return &ir.Program{
		Default: ir.Drop, Limits: limits, Guards: []ir.Guard{g},
		Rules: []ir.Rule{{Name: "verified", Verdict: ir.Pass, Match: []ir.Match{
			{Field: packet.DPort, Values: []ir.Range{{First: udp53, Last: udp53}}},
			{Field: packet.Verified, Values: []ir.Range{{First: 1, Last: 1}}},
		}}},
	}
}

func loadGuard(t testing.TB, program *ir.Program) *guarded {
	t.Helper()
	x, err := xdpgen.Generate(program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	testutil.RequireRoot(t)
	return &guarded{(&subject.Subject{Program: program}).Load(t, x), image.SlotRules + uint32(len(program.Rules))}
}

// verified reports whether the program regards the sender of a query as verified at a time. If now is 0, it is the present time.
func (g *guarded) verified(t testing.TB, query string, now time.Duration) bool {
	t.Helper()
	a, err := g.AskAt(datapath.Question{Frame: subject.FramesOf(t, query)[0].Frame, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return ir.Verdict(a.Verdict) == ir.Pass
}

// clock returns the current time of one of the kernel's clocks.
func clock(t testing.TB, id int32) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// whenUnix returns the time of CLOCK_MONOTONIC at which the time in cookies is this Unix time.
func whenUnix(t testing.TB, second int64) time.Duration {
	t.Helper()
	ahead := clock(t, unix.CLOCK_TAI) - clock(t, unix.CLOCK_MONOTONIC)
	return time.Duration(second)*time.Second + time.Second/2 - ahead
}

// address returns an address with a port in the notation of packet.Parse.
func address(a string, port uint16) string {
	return netip.AddrPortFrom(netip.MustParseAddr(a), port).String()
}

// server returns an address of the server in the family of a client.
func server(client string) string {
	if netip.MustParseAddr(client).Is4() {
		return "192.0.2.53"
	}
	return "2001:db8::53"
}

func query(client, cookie string) string {
	return fmt.Sprintf("udp %s > %s dns=A,example.com,cookie:%s", address(client, 4000), address(server(client), 53), cookie)
}

func secret(t testing.TB, text string) (s [16]byte) {
	t.Helper()
	if n, err := hex.Decode(s[:], []byte(text)); err != nil || n != len(s) {
		t.Fatalf("secret %s: %v", text, err)
	}
	return s
}

// TestCookieVectors checks the cookies of RFC 9018, appendix A, at the times given in the RFC.
func TestCookieVectors(t *testing.T) {
	const first, rolled, newest = "e5e973e5a6b2a43f48e7dc849e37bfcf", "dd3bdf9344b678b185a6f5cb60fca715", "445536bcd2513298075a5d379663c962"
	for _, test := range []struct {
		name           string
		secrets        []string
		client, cookie string
		at             int64
		another        string // a client for which the cookie is not valid
	}{
		{"A.1", []string{first}, "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", 1559731985, "198.51.100.101"},
		{"A.2", []string{first}, "198.51.100.100", "2464c4abcf10c957010000005cf7a871d4a564a1442aca77", 1559734385, "198.51.100.101"},
		{"A.3, old", []string{first}, "203.0.113.203", "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", 1559728000, "203.0.113.204"},
		{"A.3, new", []string{first}, "203.0.113.203", "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e", 1559734700, "203.0.113.204"},
		{"A.4, old", []string{newest, rolled}, "2001:db8:220:1:59de:d0f4:8769:82b8",
			"22681ab97d52c298010000005cf7c57926556bd0934c72f8", 1559741961, "2001:db8:220:1:59de:d0f4:8769:82b9"},
		{"A.4, new", []string{newest, rolled}, "2001:db8:220:1:59de:d0f4:8769:82b8",
			"22681ab97d52c298010000005cf7c609a6bb79d16625507a", 1559741961, "2001:db8:220:1:59de:d0f4:8769:82b9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var g ir.Guard
			for _, s := range test.secrets {
				g.Secrets = append(g.Secrets, secret(t, s))
			}
			p := loadGuard(t, guarding(g))
			at := whenUnix(t, test.at)
			if !p.verified(t, query(test.client, test.cookie), at) {
				t.Error("the cookie is not valid")
			}
			if p.verified(t, query(test.another, test.cookie), at) {
				t.Error("it is valid from another address")
			}
			if p.verified(t, query(test.client, test.cookie), 0) {
				t.Error("it is valid today")
			}
		})
	}
}

// sipHash returns SipHash-2-4 of a text of any length in bytes, as in section 2 of the paper.
func sipHash(key [16]byte, text []byte) uint64 {
	order := binary.LittleEndian
	k0, k1 := order.Uint64(key[:]), order.Uint64(key[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	half := func(a, b, c, d, s, u int) {
		v[a] += v[b]
		v[c] += v[d]
		v[b] = bits.RotateLeft64(v[b], s) ^ v[a]
		v[d] = bits.RotateLeft64(v[d], u) ^ v[c]
		v[a] = bits.RotateLeft64(v[a], 32)
	}
	rounds := func(n int) {
		for range n {
			half(0, 1, 2, 3, 13, 16)
			half(2, 1, 0, 3, 17, 21)
		}
	}
	padded := append([]byte{}, text...)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(text)))
	for ; len(padded) > 0; padded = padded[8:] {
		v[3] ^= order.Uint64(padded)
		rounds(2)
		v[0] ^= order.Uint64(padded)
	}
	v[2] ^= 0xff
	rounds(4)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// TestSipHash compares sipHash, which TestCookies uses as its reference, with the example in appendix A of the paper.
func TestSipHash(t *testing.T) {
	var key [16]byte
	var text [15]byte
	for i := range key {
		key[i] = byte(i)
	}
	copy(text[:], key[:])
	if got, want := sipHash(key, text[:]), uint64(0xa129ca6149be45e5); got != want {
		t.Errorf("hash is %x, want %x", got, want)
	}
}

// cookie returns the data of a COOKIE option with a server cookie that was made at a time (RFC 9018, 4).
func cookie(key [16]byte, head [12]byte, at uint32, client netip.Addr) []byte {
	c := binary.BigEndian.AppendUint32(append([]byte{}, head[:]...), at)
	hash := sipHash(key, append(append([]byte{}, c...), client.AsSlice()...))
	return binary.LittleEndian.AppendUint64(c, hash)
}

// TestCookies makes random cookies, some of which have a flaw. Exactly the cookies without a flaw must be valid.
func TestCookies(t *testing.T) {
	r, _ := subject.Seeded(t)
	keys := make([][16]byte, 3) // the present key, the previous key, and an older key that the guard does not have
	for i := range keys {
		random(r, keys[i][:])
	}
	p := loadGuard(t, guarding(ir.Guard{Secrets: keys[:2]}))
	none := loadGuard(t, guarding(ir.Guard{}))
	valid := 0
	for range 20_000 {
		now := int64(r.Uint32())
		if r.IntN(4) == 0 {
			now = 1<<32 - 2000 + r.Int64N(4000) // near the time at which timestamps wrap around
		}
		c := randomCookie(r, keys, now)
		line := query(c.from.String(), hex.EncodeToString(c.data))
		got := p.verified(t, line, whenUnix(t, now))
		if got != c.valid {
			t.Fatalf("second %d: %s: verified is %t, want %t: %s", now, line, got, c.valid, c.what)
		}
		if got {
			valid++
		}
		if none.verified(t, line, whenUnix(t, now)) {
			t.Fatalf("%s: verified by a guard without secrets", line)
		}
	}
	if valid < 4000 || valid > 16_000 {
		t.Errorf("%d of 20,000 are valid: the others test nothing", valid)
	}
}

// TestCookieOfNoSecret checks a guard that has fewer secrets than it has space for. A cookie that is made with the content of an empty place must not
// be valid.
func TestCookieOfNoSecret(t *testing.T) {
	present := secret(t, "e5e973e5a6b2a43f48e7dc849e37bfcf")
	p := loadGuard(t, guarding(ir.Guard{Secrets: [][16]byte{present}}))
	for key, want := range map[[16]byte]bool{present: true, {}: false} {
		data := cookie(key, [12]byte{8: 1}, 1000, netip.MustParseAddr("198.51.100.7"))
		if got := p.verified(t, query("198.51.100.7", hex.EncodeToString(data)), whenUnix(t, 1000)); got != want {
			t.Errorf("secret %x: verified is %t", key, got)
		}
	}
}

func random(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

type madeCookie struct {
	from  netip.Addr
	data  []byte
	valid bool
	what  string
}

// randomCookie returns a random cookie, as a client could send it at the Unix time now.
func randomCookie(r *rand.Rand, keys [][16]byte, now int64) madeCookie {
	b := make([]byte, []int{4, 16}[r.IntN(2)])
	random(r, b)
	b[0] = 0x20 | b[0]&0x0f // unicast
	from, _ := netip.AddrFromSlice(b)
	var head [12]byte
	random(r, head[:])
	head[8] = 1
	key, age := r.IntN(len(keys)), int64(r.IntN(3600))
	edges := []int64{-302, -301, -300, -1, 0, 3600, 3601, 3602, 1 << 31, 1<<31 - 1}
	if r.IntN(3) == 0 {
		age = edges[r.IntN(len(edges))]
	}
	c := madeCookie{from: from, valid: key < 2 && age >= -300 && age <= 3600, what: fmt.Sprintf("key %d, %d s old", key, age)}
	flaw := r.IntN(12)
	if flaw == 0 {
		head[8] = byte(r.IntN(256))
		c.valid = c.valid && head[8] == 1
	}
	c.data = cookie(keys[key], head, uint32(now-age), from)
	switch flaw {
	case 1:
		bit := r.IntN(8 * len(c.data))
		c.data[bit/8] ^= 1 << (bit % 8)
		c.valid = false
	case 2:
		c.data = c.data[:1+r.IntN(len(c.data)-1)]
		c.valid = false
	case 3:
		c.data = append(c.data, make([]byte, 1+r.IntN(20))...)
		c.valid = false
	}
	c.what += fmt.Sprintf(", flaw %d", flaw)
	return c
}
