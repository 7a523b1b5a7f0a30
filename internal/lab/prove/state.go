package prove

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// charge is charge_hash() of bpf/limit.h: whether the packet exceeds the limit that the last argument names. All arguments are what the
// packet's prefixes and the limit say, or the call is wrong.
func (w *world) charge(m *machine, s *state, args []*smt.Term) (result, wrong *smt.Term) {
	number, ok := m.Extract(args[4], 32, 32).IsConst()
	if !ok || number >= uint64(len(w.limits)) {
		return m.Const(64, 0), m.True()
	}
	l, limit := &w.limits[number], int(number)
	hash := w.prefixHash(m.Context, l)
	index := m.ZExt(m.Extract(m.Add(m.BitAnd(m.Lshr(hash, m.Const(64, image.LimitTime)), m.Const(64, uint64(l.Mask))), m.Const(64, uint64(l.Base))), 0, 32), 64)
	what := m.Const(64, number<<32|uint64(l.Left)<<8|uint64(l.Right))
	if l.Bits != 0 {
		what = m.BitOr(what, m.Shl(m.ZExt(w.decoded.field[packet.Length], 64), m.Const(64, 16)))
	}
	wrong = m.Or(
		m.Not(m.Eq(args[0], hash)), m.Not(m.Eq(args[1], index)), m.Not(m.Eq(args[2], w.surely(m.Context, l))), m.Not(m.Eq(args[3], m.Const(64, l.Fresh))),
		m.Not(m.Eq(args[4], what)), orFalse(m.Context, s.charged[limit]),
	)
	s.charged[limit] = m.True()
	return m.Ite(m.Var(fmt.Sprintf("over.%d", limit), 0), m.Const(64, 1), m.Const(64, 0)), wrong
}

// surely is the debt from which a limit is surely exceeded by the coarse clock, as surely_exceeded() of bpf/limit.h says: the burst less what the
// packet costs, and not less than the clock may be behind; ~0 where the burst is no longer than that.
func (w *world) surely(c *smt.Context, l *image.LimitInfo) *smt.Term {
	sure := c.Const(64, l.Units(image.LimitSureDebt))
	if l.Most <= sure.Value {
		return c.Const(64, ^uint64(0))
	}
	cost := c.Const(64, l.Cost>>image.LimitFraction)
	if l.Bits != 0 {
		length := c.ZExt(w.decoded.field[packet.Length], 64)
		cost = c.Lshr(c.Add(c.Mul(length, c.Const(64, 8*l.Cost)), c.Const(64, 1<<image.LimitFraction-1)), c.Const(64, image.LimitFraction))
	}
	most := c.Const(64, l.Most)
	most = c.Ite(c.ULT(sure, cost), c.Add(most, sure), most)
	left := c.Sub(most, cost)
	return c.Ite(c.SLT(left, sure), sure, left)
}

// prefixHash is hash_prefixes() of bpf/limit.h.
func (w *world) prefixHash(c *smt.Context, l *image.LimitInfo) *smt.Term {
	d, family := w.decoded, int(flag(w.decoded.kind.v6))
	h := c.Const(64, flag(d.kind.v6)*uint64(l.Prefixes))
	h = c.Add(h, w.sumAddress(c, d.source, l.Src[family], 0))
	if l.Dst[family] != (image.AddressMask{}) {
		h = c.Add(h, w.sumAddress(c, d.dest, l.Dst[family], 4))
	}
	fold := func(by uint64) { h = c.BitXor(h, c.Lshr(h, c.Const(64, by))) }
	fold(32)
	for i, by := range []uint64{29, 32} {
		h = c.Mul(h, c.Const(64, w.constant("limit_mix", 8*i, 8)))
		fold(by)
	}
	return h
}

// sumAddress is sum_address() of the prefix of an address.
func (w *world) sumAddress(c *smt.Context, address []*smt.Term, mask image.AddressMask, first int) *smt.Term {
	hi, lo := w.decoded.halves(address)
	sum := c.Const(64, 0)
	for i, half := range []*smt.Term{c.BitAnd(hi, c.Const(64, mask.Hi)), c.BitAnd(lo, c.Const(64, mask.Lo))} {
		a := c.Add(c.Extract(half, 32, 32), c.Const(32, w.constant("limit_keys", 4*(first+2*i), 4)))
		b := c.Add(c.Extract(half, 0, 32), c.Const(32, w.constant("limit_keys", 4*(first+2*i)+4, 4)))
		sum = c.Add(sum, c.Mul(c.ZExt(a, 64), c.ZExt(b, 64)))
	}
	return sum
}

// constant is a constant of the C part.
func (w *world) constant(name string, at, size int) uint64 {
	b := w.content[image.Constants][int(w.offsets[name])+at:]
	if size == 4 {
		return uint64(native.Uint32(b))
	}
	return native.Uint64(b)
}

// isReply is whether a packet is a reply to what has left: the bit of its bucket is set, and is_reply() says so.
func (w *world) isReply(m *meaning) *smt.Term {
	return m.And(w.replyBit(m.Context, w.replyIndex(m.Context)), m.Not(m.Eq(w.replyState(m.Context), m.Const(64, 0))))
}

// replyIndex is reply_index() of bpf/replyflow.h for a packet that arrives: the other side is the source.
func (w *world) replyIndex(c *smt.Context) *smt.Term {
	d := w.decoded
	own := d.frame.load(d.payload-4, 8)
	var other *smt.Term
	if d.kind.v6 {
		other = d.frame.load(d.kind.ip()+16, 8)
	} else {
		other = d.frame.load(d.kind.ip()+12, 4)
	}
	sum := c.Add(c.Mul(own, c.Const(64, w.replyKind())), c.ZExt(other, 64))
	key := c.Apply(image.ReplyFilter+".8", 64, c.Const(64, 0))
	return c.Lshr(c.Mul(sum, key), c.Const(64, 64-image.ReplyBucketBits))
}

// replyKind is enum reply_kind of bpf/replyflow.h.
func (w *world) replyKind() uint64 {
	if w.decoded.kind.proto == protoTCP {
		return image.ReplyTCP
	}
	return image.ReplyUDP
}

// replyBit is whether the bucket with an index is in use.
func (w *world) replyBit(c *smt.Context, index *smt.Term) *smt.Term {
	word := c.BitAnd(c.Lshr(index, c.Const(64, 3)), c.Const(64, ^uint64(7)))
	used := c.Apply(image.ReplyFilter+".8", 64, c.Add(word, c.Const(64, image.ReplySecretsSize)))
	return c.Eq(c.Extract(c.Lshr(used, c.BitAnd(index, c.Const(64, 63))), 0, 1), c.Const(1, 1))
}

// replyState is what is_reply() says of the packet: of both addresses, the ports with the kind, and the flags of TCP.
func (w *world) replyState(c *smt.Context) *smt.Term {
	d := w.decoded
	ports := c.BitOr(c.ZExt(d.frame.load(d.payload, 4), 64), c.Const(64, w.replyKind()<<32))
	flags := c.Const(64, 0)
	if d.kind.proto == protoTCP {
		flags = c.ZExt(d.frame.byte(d.payload+13), 64)
	}
	return c.Apply(image.IsReply, 64, w.replyPair(c), ports, flags, w.replyIndex(c))
}

// replyPair are both addresses: of IPv4 as they stand, of IPv6 the sum of products of halves (reply_addresses6() of bpf/replyflow.h).
func (w *world) replyPair(c *smt.Context) *smt.Term {
	const keysAt = 32
	d := w.decoded
	if !d.kind.v6 {
		return d.frame.load(d.kind.ip()+12, 8)
	}
	sum := c.Const(64, 0)
	for i := range 4 {
		key := c.Apply(image.ReplyFilter+".8", 64, c.Const(64, uint64(keysAt+8*i)))
		word := c.Add(d.frame.load(d.kind.ip()+8+8*i, 8), key)
		sum = c.Add(sum, c.Mul(c.ZExt(c.Extract(word, 0, 32), 64), c.Lshr(word, c.Const(64, 32))))
	}
	return sum
}
