// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Offsets in struct flood_state of bpf/flood.h, and the flags beside the number of a flood in bpf/client.h.
const (
	floodUntil  = 0
	floodSpent  = 8
	clientDrawn = 1 << 9
	clientFresh = 1 << 10
)

// asked returns a formula that holds if the answer to the flood question of a rule is yes. Functions of the flow table recognize known clients: see
// known. All other answers are variables; floods has the assumptions about these.
func (w *world) asked(m *meaning, r *ir.Rule) *smt.Term {
	identified := identifies(w.program.Floods[r.Flood].Protocol)
	switch {
	case r.Asks == ir.AsksKnown:
		return w.known(m.Context, r.Flood)
	case r.Asks == ir.AsksAnswered:
		return w.goesOn(m.Context, r.Flood)
	case r.Asks == ir.AsksAgain:
		return w.again(m.Context, r.Flood)
	case r.Asks == ir.AsksProved && identified:
		return w.datagram(r.Flood).proved()
	case r.Asks == ir.AsksStray && identified:
		return m.Not(w.datagram(r.Flood).begins())
	}
	return w.question(m.Context, r.Asks, r.Flood)
}

func (w *world) question(c *smt.Context, q ir.FloodQuestion, flood int) *smt.Term {
	return c.Var(fmt.Sprintf("%s.%d", q, flood), 0)
}

// known models known_client() of bpf/client.h. The result holds if the packet is a reply of a known client. A small share of these packets is chosen
// at random and tested again. With WireGuard the packet may also be a reply of a new client that becomes known.
func (w *world) known(c *smt.Context, flood int) *smt.Term {
	state := w.replyState(c)
	asked := func(flag int) *smt.Term {
		return c.Not(c.Eq(c.Apply(image.KnownInFrame, 64, c.Const(64, uint64(flood|flag))), c.Const(64, 0)))
	}
	drawn := c.Eq(c.BitAnd(c.Var("random", 32), c.Const(32, ir.KnownShare-1)), c.Const(32, 0))
	out := c.And(c.Eq(state, c.Const(64, image.ReplyClient)), c.Or(c.Not(drawn), asked(clientDrawn)))
	if w.program.Floods[flood].Protocol == packet.WireGuard {
		out = c.Or(out, c.And(c.Eq(state, c.Const(64, image.ReplyClientNew)), asked(clientFresh)))
	}
	return c.And(w.replyBit(c, w.replyIndex(c)), out)
}

// goesOn models goes_on() of bpf/client.h. The result holds if the packet is a reply of a new client, and is tested again.
func (w *world) goesOn(c *smt.Context, flood int) *smt.Term {
	asked := c.Not(c.Eq(c.Apply(image.GoesOnInFrame, 64, c.Const(64, uint64(flood))), c.Const(64, 0)))
	return c.And(w.replyBit(c, w.replyIndex(c)), c.Eq(w.replyState(c), c.Const(64, image.ReplyClientNew)), asked)
}

// again models comes_again() of bpf/newcomer.h. The result holds if three conditions hold: the table has the packet's flow with a recent time, the
// limit for all packets was not exceeded, and the packet is within the limits.
func (w *world) again(c *smt.Context, flood int) *smt.Term {
	const bits, tagBits, timeBits = image.NewcomerBits, image.NewcomerTagBits, image.NewcomerTimeBits
	sum, tick := w.replySum(c), c.Apply(image.Tick+".8", 64, c.Const(64, 0))
	number := c.ZExt(c.Extract(sum, 64-bits, bits), 64)
	word := c.Apply(image.Newcomers+".2", 16, c.Add(c.Shl(number, c.Const(64, 1)), c.Const(64, image.NewcomersSeen)))
	tag := c.Extract(sum, 64-bits-tagBits, tagBits)
	age := c.Sub(c.Extract(tick, image.NewcomerUnit, timeBits), c.Extract(word, 0, timeBits))
	spent := c.Apply(image.Newcomers+".8", 64, c.Const(64, uint64(8*flood)))
	within := c.Not(c.Eq(c.Apply(image.AgainInFrame, 64, c.Const(64, uint64(flood))), c.Const(64, 0)))
	return c.And(
		c.Eq(c.Extract(word, timeBits, tagBits+1), c.Concat(c.Const(1, 1), tag)),
		c.Not(c.Eq(age, c.Const(timeBits, 0))), c.ULE(age, c.Const(timeBits, ir.AgainMost)), c.Not(c.ULT(tick, spent)), within,
	)
}

// floods adds the assumptions about questions about floods. While the memory has the state of a flood, there is no calm. A limit is spent until the
// recorded time. A packet without the form of a query is no query. A challenged packet opens a query.
func (w *world) floods(c *smt.Context) {
	tick := c.Apply(image.Tick+".8", 64, c.Const(64, 0))
	same := c.Eq(c.Extract(c.BitXor(c.Var("jiffies", 64), tick), 0, image.TickBits), c.Const(image.TickBits, 0))
	clock := c.And(same, c.Not(c.Eq(tick, c.Const(64, 0))))
	for i := range w.program.Floods {
		at := func(member int) *smt.Term {
			return c.Apply(image.FloodStates+".8", 64, c.Const(64, uint64(i*image.FloodStateSize+member)))
		}
		lasts := c.ULT(c.Add(tick, c.Const(64, image.ActiveTime-image.ActiveRenew)), at(floodUntil))
		w.assume(c.Implies(c.And(clock, lasts), c.Not(w.question(c, ir.AsksCalm, i))))
		w.assume(c.Implies(c.And(clock, c.ULT(tick, at(floodSpent))), w.question(c, ir.AsksSpent, i)))
		protocol := w.program.Floods[i].Protocol
		if identifies(protocol) {
			w.assume(c.Implies(w.decoded.has(ir.Match{Field: packet.DPort, Values: w.program.Floods[i].Ports}), w.datagram(i).promises()))
		}
		if protocol != packet.A2S && protocol != packet.RakNet {
			continue
		}
		form := w.queryForm(c, protocol)
		for _, q := range []ir.FloodQuestion{ir.AsksQuery, ir.AsksOpening, ir.AsksServed, ir.AsksProved} {
			w.assume(c.Implies(w.question(c, q, i), form))
		}
		w.assume(c.Implies(challengedBy(c, i), w.question(c, ir.AsksOpening, i)))
	}
}

// queryForm returns a formula that holds if a packet has the form of a query or request to a game server: packet.Datagrams.Asks.
func (w *world) queryForm(c *smt.Context, protocol packet.Datagrams) *smt.Term {
	d := w.decoded
	long := c.ULE(d.n(uint64(udpHeader+protocol.Least())), d.rest)
	payload := d.payload + udpHeader
	if protocol == packet.A2S {
		kind := d.frame.byte(payload + 4)
		return c.And(long, d.is(d.frame.number(payload, 4), 0xffffffff), c.Or(d.is(kind, 'T'), d.is(kind, 'U'), d.is(kind, 'V')))
	}
	kind := d.frame.byte(payload)
	return c.And(long, c.Or(d.is(kind, 5), d.is(kind, 7)), d.is(d.frame.number(payload+1, 8), 0x00ffff00fefefefe))
}

// challenged returns a formula that holds if challenge_query() of bpf/gamequery.h challenges the packet, with this decision as its argument. The
// packet then opens a query at the service of the decision's rule. ok is false if that rule challenges no packet.
func (w *world) challenged(c *smt.Context, decision *smt.Term) (yes *smt.Term, ok bool) {
	slot, known := c.Extract(decision, 8, 24).IsConst()
	for i := range w.program.Rules {
		if r := &w.program.Rules[i]; known && uint64(w.slots[i]) == slot && r.Asks == ir.AsksOpening {
			return challengedBy(c, r.Flood), true
		}
	}
	return nil, false
}

func challengedBy(c *smt.Context, flood int) *smt.Term {
	return c.Var(fmt.Sprintf("challenged.%d", flood), 0)
}
