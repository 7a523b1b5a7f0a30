package prove

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Offsets in struct flood_state of bpf/flood.h, and what stands beside the number of a flood: bpf/client.h.
const (
	floodUntil  = 0
	floodSpent  = 8
	clientDrawn = 1 << 9
	clientFresh = 1 << 10
)

// asked is what a rule asks about a flood. Known clients are told by functions of the flow table, see known; all else is a variable, of which
// floods says what is promised.
func (w *world) asked(m *meaning, r *ir.Rule) *smt.Term {
	identified := identifies(w.program.Floods[r.Flood].Protocol)
	switch {
	case r.Asks == ir.AsksKnown:
		return w.known(m.Context, r.Flood)
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

// known is known_client() of bpf/client.h: the packet is a reply of a known client, of which one in a share is drawn and asked about again; and
// of WireGuard also that of a new client that becomes known.
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

// floods are what holds of questions about floods: there is no calm while the memory says that a flood will last; a limit is spent until the time
// that is noted; what has not the form of a query is none; and what is challenged opens one.
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

// queryForm is what each query or request at a game server has: packet.Datagrams.Asks.
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

// challenged is whether challenge_query() of bpf/gamequery.h challenges the packet, whose decision it is told: then the packet opens a query at the service of
// that rule. ok is false for the decision of another rule.
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
