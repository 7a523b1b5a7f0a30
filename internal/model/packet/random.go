// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// Hints has values that a policy under test mentions. Random packets use these values and their neighbors, so that they often match the policy's
// rules.
type Hints struct {
	Addrs  []netip.Prefix      // random addresses lie inside these prefixes, at their ends, and directly beside them
	Values [NumFields][]uint32 // values of the fields, encoded as in Packet.Value; random fields have these values and their neighbors
	Names  []string            // in the form of Query.Name; random DNS queries have these names, names below them, and similar names
	Texts  [][]byte            // random payloads contain these texts, or parts of them
}

// maxRandom is the size in bytes of the largest IP packet that Random makes. A longer packet only has a header that states a larger length.
// BPF_PROG_TEST_RUN accepts only frames that fit into a page together with their headroom.
const maxRandom = 1500

// Random returns a random frame of 14 to about 1,600 bytes. The frame is made for tests of parsers and policies: both families, VLAN tags, options,
// extension headers and fragments are frequent. Some frames have wrong lengths, are truncated, or have flipped bits. The same state of r gives the
// same frame.
func Random(r *rand.Rand, hints Hints) []byte {
	g := generator{r: r, hints: &hints}
	if g.oneIn(50) {
		return g.notIP()
	}
	return g.damage(g.randomSpec().Frame())
}

// RandomSpec returns a random well-formed packet that the notation can express. It is like the packets of Random, but has no wrong lengths and no
// wrong header values.
func RandomSpec(r *rand.Rand, hints Hints) Spec {
	g := generator{r: r, hints: &hints, wellFormed: true}
	return g.randomSpec()
}

type generator struct {
	r          *rand.Rand
	hints      *Hints
	wellFormed bool
	spec       Spec
}

// oneIn returns true with the probability 1/n.
func (g *generator) oneIn(n int) bool { return g.r.IntN(n) == 0 }

// wrong returns true with the probability 1/n, but never if the packet must be well-formed.
func (g *generator) wrong(n int) bool { return !g.wellFormed && g.oneIn(n) }

func pick[T any](g *generator, list []T) T { return list[g.r.IntN(len(list))] }

func (g *generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
	return b
}

// randomSpec chooses all parts of a packet at random.
func (g *generator) randomSpec() Spec {
	s := &g.spec
	v4 := g.oneIn(2)
	s.sourceMAC = defaultSource
	s.src, s.dst = g.addr(v4), g.addr(v4)
	if g.oneIn(40) {
		s.dst = s.src
	}
	g.protocol(v4)
	g.network(v4)
	g.link()
	g.maybePayload()
	g.length()
	return *s
}

// link chooses VLAN tags and the source address at random.
func (g *generator) link() {
	s := &g.spec
	if n := len(g.hints.Values[VLAN]); n > 0 && g.oneIn(2) || g.oneIn(8) {
		for range 1 + g.r.IntN(maxVLANs) {
			s.vlans = append(s.vlans, uint16(g.value(VLAN, 0, 1, 10, 4095)&0x0fff))
		}
	}
	if g.wrong(60) {
		s.vlans = []uint16{1, 2, 3}
	}
	if g.wrong(40) {
		s.sourceMAC[0] |= 1
	}
}

// network chooses the fields of the IP header at random.
func (g *generator) network(v4 bool) {
	s := &g.spec
	g.maybe(numTTL, TTL, 0, 1, 64, 255)
	g.maybe(numDSCP, DSCP, 0, 46)
	if n := len(g.hints.Values[Fragment]); n > 0 && g.oneIn(2) || g.oneIn(8) {
		s.moreFrags = g.oneIn(2)
		s.put(numFrag, pick(g, []uint32{0, 0, 0, 8, 16, 24, laterOffset, 65528, uint32(g.r.IntN(8192)) * 8}))
	}
	switch {
	case v4 && g.oneIn(6):
		s.ipOptions = g.ipOptions()
	case !v4 && g.oneIn(3):
		for range 1 + g.r.IntN(1+g.r.IntN(maxExtHeaders+1)) {
			s.ext = append(s.ext, g.r.IntN(len(extensionKinds)))
		}
	}
	if v4 && g.wrong(20) {
		s.put(numIHL, g.r.Uint32N(16))
	}
	if g.wrong(20) {
		s.checksum = pick(g, []checksumKind{checksumBad, checksumZero})
	}
}

// ipOptions returns random IPv4 options: router alert, source routes, other options, or random bytes.
func (g *generator) ipOptions() []byte {
	if g.wrong(2) {
		return g.bytes(1 + g.r.IntN(40))
	}
	return pick(g, [][]byte{
		{optNop}, {optRouterAlert, 4, 0, 0}, {optLooseSource, 7, 4, 192, 0, 2, 1}, {optStrictRoute, 3, 4},
		{optNop, 7, 7, 4, 0, 0, 0, 0}, {68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	})
}

// length chooses the length of the packet, and the length that its header states.
func (g *generator) length() {
	if n := len(g.hints.Values[Length]); n > 0 && g.oneIn(2) || g.oneIn(6) {
		want := g.value(Length, 46, 576, 1024, 1025, 1500)
		if least := uint32(len(g.spec.Frame()) - g.spec.linkHeader()); want >= least && want <= maxRandom {
			g.spec.put(numLen, want)
		} else if !g.wellFormed {
			g.spec.put(numTotLen, max(want, ipv6Header))
		}
	}
	if g.wrong(20) {
		g.spec.put(numTotLen, ipv6Header+g.r.Uint32N(100))
	}
}

// maybe sets n to a random value of the field f. It does so often if the policy mentions the field, and rarely otherwise.
func (g *generator) maybe(n number, f Field, usual ...uint32) {
	if len(g.hints.Values[f]) > 0 && g.oneIn(2) || g.oneIn(6) {
		g.spec.put(n, g.value(f, usual...))
	}
}

// value returns a random value of f: a value that the policy mentions, a neighbor of it, one of the values in usual, or any value.
func (g *generator) value(f Field, usual ...uint32) uint32 {
	hints := g.hints.Values[f]
	switch n := g.r.IntN(8); {
	case n < 6 && len(hints) > 0:
		v := pick(g, hints)
		if g.oneIn(4) {
			v += g.r.Uint32N(3) - 1 // a value below 0 wraps around and counts as too large
		}
		return min(v, f.Size()-1)
	case n < 7 && len(usual) > 0:
		return pick(g, usual)
	}
	return g.r.Uint32N(f.Size())
}

// notIP returns a frame of another protocol than IP.
func (g *generator) notIP() []byte {
	if g.oneIn(2) {
		return g.bytes(etherHeader + g.r.IntN(100))
	}
	return Spec{layer: layerARP, sourceMAC: defaultSource}.Frame()
}

// damage returns most frames unchanged. Others it truncates, lengthens or corrupts.
func (g *generator) damage(b []byte) []byte {
	switch g.r.IntN(8) {
	case 0:
		return b[:etherHeader+g.r.IntN(len(b)-etherHeader+1)]
	case 1:
		for range 1 + g.r.IntN(4) {
			bit := 12*8 + g.r.IntN((min(len(b), 120)-12)*8)
			b[bit/8] ^= 1 << (bit % 8)
		}
	case 2:
		return append(b, g.bytes(g.r.IntN(46))...)
	}
	return b
}

// tcpOptionText returns random TCP options in the notation. "" means the default options.
func (g *generator) tcpOptionText() string {
	if g.wrong(4) {
		return hex.EncodeToString(g.bytes(1 + g.r.IntN(maxTCPOptions)))
	}
	if len(g.hints.Values[MSS]) > 0 && g.oneIn(2) {
		if size := g.value(MSS, 536, 1460); size < MSSMissing {
			return fmt.Sprintf(pick(g, []string{"mss:%d", "mss:%d,sack,ts,nop,ws:7", "nop,nop,mss:%d", "ts,nop,mss:%d,mss:1"}), size)
		}
		return "none"
	}
	return pick(g, []string{"", "", "none", "mss:1460,sack,ts,ws:7", "mss:536", "nop,nop,ts", "ws:7,eol"})
}
