// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Numbers of bpf/datagram.h, and offsets in struct flood_state of bpf/flood.h.
const (
	idFactor1     = 0x1e3779b1
	idFactor2     = 0x45d9f3b5
	floodUnproved = 16
	floodIDLength = 24
	floodIDMask   = 32
	udpHeader     = 8
)

// identifies reports whether the datagrams of a protocol have identifiers that the entry looks up.
func identifies(p packet.Datagrams) bool { return p == packet.WireGuard || p == packet.QUIC }

// datagram is the payload of a UDP packet to a service whose datagrams have identifiers.
type datagram struct {
	*decoded
	world *world
	flood int
	at    int // the offset of the payload in the frame
}

func (w *world) datagram(flood int) *datagram {
	return &datagram{w.decoded, w, flood, w.decoded.payload + udpHeader}
}

// long holds if the payload has at least n bytes. exactly holds if it has just n bytes.
func (g *datagram) long(n int) *smt.Term    { return g.ULE(g.n(uint64(udpHeader+n)), g.rest) }
func (g *datagram) exactly(n int) *smt.Term { return g.is(g.rest, uint64(udpHeader+n)) }

// longAs holds if the payload has at least n+more bytes. n is a formula for a number.
func (g *datagram) longAs(n *smt.Term, more int) *smt.Term {
	return g.ULE(g.Add(g.word(n), g.n(uint64(udpHeader+more))), g.rest)
}

// kindIs holds if the payload is a WireGuard message of type n: one byte with the type, and three bytes of 0.
func (g *datagram) kindIs(n uint64) *smt.Term {
	return g.And(g.long(packet.WireGuard.Least()), g.is(g.frame.load(g.at, 4), n))
}

// begins holds if the datagram begins a conversation: packet.Datagrams.Begins.
func (g *datagram) begins() *smt.Term {
	if g.world.program.Floods[g.flood].Protocol == packet.WireGuard {
		const initiation, length, mac1 = 1, 148, 116
		code := g.Or(g.Not(g.is(g.frame.load(g.at+mac1, 8), 0)), g.Not(g.is(g.frame.load(g.at+mac1+8, 8), 0)))
		return g.And(g.kindIs(initiation), g.exactly(length), code)
	}
	const longHeader, fixed = 7, 6 // bits
	form := g.And(g.long(packet.QUIC.Least()), g.bit(g.at, fixed))
	theirs := g.frame.byte(g.at + 5)
	version := g.frame.number(g.at+1, 4)
	kind := g.Extract(g.frame.byte(g.at), 4, 2)
	starts := g.False()
	for _, v := range []struct{ version, initial uint64 }{{1, 0}, {0x6b3343cf, 1}} {
		initial := g.And(g.is(kind, v.initial), g.long(1200))
		starts = g.Or(starts, g.And(g.is(version, v.version), g.Or(initial, g.is(kind, v.initial+1))))
	}
	own := g.False() // holds if the sender's own identifier is short enough
	for n := 8; n <= packet.MostID; n++ {
		fits := g.ULE(g.frame.byte(g.at+6+n), g.Const(8, packet.MostID))
		own = g.Or(own, g.And(g.is(theirs, uint64(n)), g.longAs(theirs, 7), fits))
	}
	return g.And(form, g.Or(g.Not(g.bit(g.at, longHeader)), g.And(starts, own)))
}

// issued models proved_datagram() of bpf/client.h. It holds if the identifier with this key was issued, and if the limit for packets with identifiers
// allows one more packet. The bit of the first filter and is_reply() are looked up as for a conversation without ports, with the key of issued_key()
// of bpf/datagram.h. A small share of the packets is charged to the limit.
func (g *datagram) issued(key *smt.Term) *smt.Term {
	c, w := g.Context, g.world
	secret := c.Apply(image.ReplyFilter+".8", 64, c.Const(64, 0))
	index := c.Lshr(c.Mul(key, secret), c.Const(64, 64-image.ReplyBucketBits))
	noted := c.Apply(image.IsReply, 64, key, c.Const(64, image.ReplyIssued<<32), c.Const(64, 0), index)
	drawn := c.Eq(c.BitAnd(c.Var("random", 32), c.Const(32, ir.KnownShare-1)), c.Const(32, 0))
	charged := c.Apply(image.ProvedInFrame, 64, c.Const(64, uint64(g.flood|clientDrawn)))
	zero := c.Const(64, 0)
	return c.And(w.replyBit(c, index), c.Not(c.Eq(noted, zero)), c.Or(c.Not(drawn), c.Not(c.Eq(charged, zero))))
}

// state returns a member of the state of the flood.
func (g *datagram) state(member int) *smt.Term {
	return g.Apply(image.FloodStates+".8", 64, g.Const(64, uint64(g.flood*image.FloodStateSize+member)))
}

// proved holds if the datagram has an identifier that the service has issued to any client, and if all such packets together have, by the coarse
// clock, not exceeded their limit. packet.Datagrams.Named defines the place of the identifier.
func (g *datagram) proved() *smt.Term {
	tick := g.Apply(image.Tick+".8", 64, g.Const(64, 0))
	may := g.Not(g.ULT(tick, g.state(floodUnproved)))
	if g.world.program.Floods[g.flood].Protocol == packet.WireGuard {
		const response, cookie, data = 2, 3, 4
		first := g.Or(g.kindIs(data), g.And(g.kindIs(cookie), g.exactly(64)))
		second := g.And(g.kindIs(response), g.exactly(92))
		key := g.Ite(second, g.frame.load(g.at+8, 4), g.frame.load(g.at+4, 4))
		return g.And(may, g.Or(first, second), g.issued(g.ZExt(key, 64)))
	}
	short := g.Not(g.bit(g.at, 7))
	own, theirs := g.state(floodIDLength), g.frame.byte(g.at+5)
	counts := func(n *smt.Term) *smt.Term {
		return g.And(g.ULE(g.Const(n.Width, packet.LeastID), n), g.ULE(n, g.Const(n.Width, packet.MostID)))
	}
	ofShort := g.And(short, counts(own), g.issued(g.key(g.at+1, func(i int) *smt.Term { return g.state(floodIDMask + 8*i) })))
	ofLong := g.And(g.Not(short), counts(theirs), g.longAs(theirs, 6), g.issued(g.key(g.at+6, func(i int) *smt.Term { return g.mask(theirs, i) })))
	return g.And(may, g.long(packet.QUIC.Least()), g.Or(ofShort, ofLong))
}

// key models issued_key() of bpf/datagram.h, for an identifier at an offset of the frame, with masks for its three words.
func (g *datagram) key(at int, mask func(word int) *smt.Term) *smt.Term {
	sum := g.BitAnd(g.frame.load(at, 8), mask(0))
	sum = g.Add(sum, g.Mul(g.BitAnd(g.frame.load(at+8, 8), mask(1)), g.Const(64, idFactor1)))
	return g.Add(sum, g.Mul(g.BitAnd(g.ZExt(g.frame.load(at+16, 4), 64), mask(2)), g.Const(64, idFactor2)))
}

// mask returns the mask of a word of an identifier of this length.
func (g *datagram) mask(length *smt.Term, word int) *smt.Term {
	values := make([]uint64, 256)
	for n := range packet.MostID + 1 {
		for i := 8 * word; i < min(n, 8*word+8); i++ {
			values[n] |= 0xff << (8 * (i - 8*word))
		}
	}
	return g.Choice(length, values, 64)
}

// promises returns assumptions about the functions in C and the memory, for a datagram. If the length of a service's identifiers is valid, the memory
// has the mask for that length.
func (g *datagram) promises() *smt.Term {
	zero, flood := g.Const(64, 0), g.Const(64, uint64(g.flood))
	stray := g.Not(g.Eq(g.Apply(image.StrayInFrame, 64, flood), zero))
	proved := g.Not(g.Eq(g.Apply(image.ProvedInFrame, 64, flood), zero))
	own := g.state(floodIDLength)
	counts := g.And(g.ULE(g.Const(64, packet.LeastID), own), g.ULE(own, g.Const(64, packet.MostID)))
	return g.And(g.Eq(stray, g.Not(g.begins())), g.Eq(proved, g.proved()), g.Eq(g.Not(g.Eq(g.state(floodIDMask), zero)), counts))
}

// identifiers returns formulas that fix the identifiers of datagrams to zeros. For QUIC there are two: one for short packets, and one for packets in
// which the identifier follows its length.
func (w *world) identifiers() (list []*smt.Term) {
	if w.decoded.kind.proto != protoUDP {
		return nil
	}
	for i := range w.program.Floods {
		if !identifies(w.program.Floods[i].Protocol) {
			continue
		}
		g := w.datagram(i)
		zeros := func(from, end int) *smt.Term {
			out := g.True()
			for at := from; at < end; at++ {
				out = g.And(out, g.is(g.frame.byte(g.at+at), 0))
			}
			return out
		}
		if w.program.Floods[i].Protocol == packet.WireGuard {
			list = append(list, zeros(4, 12))
		} else {
			list = append(list, zeros(1, 21), zeros(6, 26))
		}
	}
	return list
}
