// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// charge models charge_hash() of bpf/limit.h. The result holds if the packet exceeds the limit that the last argument names. The call is wrong unless
// all arguments belong to the packet's prefixes and the limit. The limit may depend on the packet, and an argument may combine the limit's number
// with the packet's length. So the call is compared with each limit.
func (w *world) charge(m *machine, s *state, args []*smt.Term) (result, wrong *smt.Term) {
	number, isConst := m.Extract(args[4], 32, 32).IsConst()
	result, wrong = m.Const(64, 0), m.True()
	for limit := range w.limits {
		if isConst && number != uint64(limit) {
			continue
		}
		l := &w.limits[limit]
		named := m.Eq(args[4], w.charged(m.Context, limit))
		hash := w.prefixHash(m.Context, l)
		index := m.ZExt(m.Extract(m.Add(m.BitAnd(m.Lshr(hash, m.Const(64, image.LimitTime)), m.Const(64, uint64(l.Mask))), m.Const(64, uint64(l.Base))), 0, 32), 64)
		differs := m.Or(
			m.Not(m.Eq(args[0], hash)), m.Not(m.Eq(args[1], index)), m.Not(m.Eq(args[2], w.surely(m.Context, l))), m.Not(m.Eq(args[3], m.Const(64, l.Fresh))),
			orFalse(m.Context, s.charged[limit]),
		)
		over := m.Ite(m.Var(fmt.Sprintf("over.%d", limit), 0), m.Const(64, 1), m.Const(64, 0))
		result, wrong = m.Ite(named, over, result), m.Ite(named, differs, wrong)
		s.charged[limit] = m.Or(orFalse(m.Context, s.charged[limit]), named)
	}
	return result, wrong
}

// charged returns the argument of charge_hash() that names a limit: the limit's number and shifts, and the packet's length if the limit counts bits.
func (w *world) charged(c *smt.Context, limit int) *smt.Term {
	l := &w.limits[limit]
	what := c.Const(64, uint64(limit)<<32|uint64(l.Left)<<8|uint64(l.Right))
	if l.Bits != 0 {
		what = c.BitOr(what, c.Shl(c.ZExt(w.decoded.field[packet.Length], 64), c.Const(64, 16)))
	}
	return what
}

// surely returns the debt from which on a limit is certainly exceeded by the coarse clock, as in surely_exceeded() of bpf/limit.h. It is the burst
// minus the cost of the packet, but at least the greatest delay of the coarse clock. It is ~0 if the burst is not longer than that delay.
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

// prefixHash models hash_prefixes() of bpf/limit.h.
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

// sumAddress models sum_address() for the prefix of an address.
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

// constant returns a constant of the C part.
func (w *world) constant(name string, at, size int) uint64 {
	b := w.content[image.Constants][int(w.offsets[name])+at:]
	if size == 4 {
		return uint64(native.Uint32(b))
	}
	return native.Uint64(b)
}

// isReply holds if a packet is a reply to packets that left the host: the bit of the packet's bucket is set, and is_reply() returns true.
func (w *world) isReply(m *meaning) *smt.Term {
	return m.And(w.replyBit(m.Context, w.replyIndex(m.Context)), m.Not(m.Eq(w.replyState(m.Context), m.Const(64, 0))))
}

// replyIndex models reply_index() of bpf/replyflow.h.
func (w *world) replyIndex(c *smt.Context) *smt.Term {
	return c.Lshr(w.replySum(c), c.Const(64, 64-image.ReplyBucketBits))
}

// replySum models reply_sum() of bpf/replyflow.h for an arriving packet: the other side is the source.
func (w *world) replySum(c *smt.Context) *smt.Term {
	d := w.decoded
	key := func(at uint64) *smt.Term { return c.Apply(image.ReplyFilter+".8", 64, c.Const(64, at)) }
	return c.Add(c.Mul(w.replyPair(c), key(0)), c.Mul(c.ZExt(d.frame.load(d.payload, 4), 64), key(8)))
}

// replyKind returns a value of enum reply_kind of bpf/replyflow.h.
func (w *world) replyKind() uint64 {
	if w.decoded.kind.proto == protoTCP {
		return image.ReplyTCP
	}
	return image.ReplyUDP
}

// flowsOf6 returns formulas that fix both addresses of IPv6 and the secrets of the table of replies, so that the sum of the addresses is a number. In
// one formula the source is an Internet address, in the other a link-local one.
func (w *world) flowsOf6(c *smt.Context) (list []*smt.Term) {
	if !w.decoded.kind.v6 || !slices.ContainsFunc(w.program.Rules, func(r ir.Rule) bool { return r.Reply }) {
		return nil
	}
	for _, source := range []uint64{0x2a00_0001_0002_0003, 0xfe80_0000_0000_0000} {
		all := c.True()
		for at := uint64(0); at < image.ReplySecretsSize; at += 8 {
			all = c.And(all, c.Eq(c.Apply(image.ReplyFilter+".8", 64, c.Const(64, at)), c.Const(64, 0x9e3779b97f4a7c15*(2*at+1))))
		}
		for i, half := range []uint64{source, 7, 0x2a00_0004_0005_0006, 8} {
			addr := [][]*smt.Term{w.decoded.source, w.decoded.dest}[i/2]
			for j := range 8 {
				all = c.And(all, c.Eq(addr[8*(i%2)+j], c.Const(8, half>>(56-8*j)&0xff)))
			}
		}
		list = append(list, all)
	}
	return list
}

// replyBit holds if the bucket with an index is in use.
func (w *world) replyBit(c *smt.Context, index *smt.Term) *smt.Term {
	word := c.BitAnd(c.Lshr(index, c.Const(64, 3)), c.Const(64, ^uint64(7)))
	used := c.Apply(image.ReplyFilter+".8", 64, c.Add(word, c.Const(64, image.ReplySecretsSize)))
	return c.Eq(c.Extract(c.Lshr(used, c.BitAnd(index, c.Const(64, 63))), 0, 1), c.Const(1, 1))
}

// replyState returns the result of is_reply() for the packet. It depends on both addresses, the ports with the kind, and the TCP flags.
func (w *world) replyState(c *smt.Context) *smt.Term {
	d := w.decoded
	ports := c.BitOr(c.ZExt(d.frame.load(d.payload, 4), 64), c.Const(64, w.replyKind()<<32))
	flags := c.Const(64, 0)
	if d.kind.proto == protoTCP {
		flags = c.ZExt(d.frame.byte(d.payload+13), 64)
	}
	return c.Apply(image.IsReply, 64, w.replyPair(c), ports, flags, w.replyIndex(c))
}

// replyPair returns both addresses. IPv4 addresses are unchanged. For IPv6, it returns the sum of products of halves (reply_addresses6() of
// bpf/replyflow.h).
func (w *world) replyPair(c *smt.Context) *smt.Term {
	const keysAt = 40
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
