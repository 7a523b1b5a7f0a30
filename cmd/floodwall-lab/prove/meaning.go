// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// meaning is the result of ir.Program.Eval for a frame of a kind, as a formula. It follows Eval step by step, and uses nothing of the compiler.
type meaning struct {
	*decoded
	world   *world
	program *ir.Program

	decision  *smt.Term                // 32 bits: the verdict, and above it the slot of the reason
	protected *smt.Term                // the rule that decides has a protection
	observed  *smt.Term                // a check or a rule counts the packet without deciding, before the decision
	noted     map[uint32]*smt.Term     // by slot: the packets that each check or rule counts without deciding
	decides   map[uint32]*smt.Term     // by slot: the packets that each reason decides
	gets      map[ir.Verdict]*smt.Term // the packets with each verdict
	both      bool                     // the class of the destination is also known
	outside   *smt.Term                // only netfilter: the packets about which nothing is claimed
	charged   map[int]*smt.Term        // by limit: the limit is tested, and charges the packet if the limit is not exceeded
	matches   []*smt.Term              // of each rule: all of its tests hold
}

func mean(d *decoded, w *world) *meaning {
	m := &meaning{decoded: d, world: w, program: w.program, charged: map[int]*smt.Term{}, noted: map[uint32]*smt.Term{}, decides: map[uint32]*smt.Term{}, gets: map[ir.Verdict]*smt.Term{}}
	own := d.False()
	for i := range m.program.Sets {
		if s := m.program.Sets[i].Dynamic; s != nil && s.Local {
			own = d.Or(own, m.member(i, false))
		}
	}
	m.fail(packet.OwnSource, d.And(d.Not(d.malformed), own))
	if w.netfilter != nil {
		m.outside = w.netfilter.checks(m)
	}
	if m.program.RepliesFirst {
		m.repliesFirst()
	}
	m.rules()
	return m
}

// repliesFirst lets replies pass the checks of senders. For ICMP it only assumes that requests are no replies.
func (m *meaning) repliesFirst() {
	var reply *smt.Term
	switch proto := m.kind.proto; {
	case m.world.netfilter != nil:
		reply = m.has(ir.Replies)
	case proto == protoTCP || proto == protoUDP:
		reply = m.world.isReply(m)
	default:
		question := m.Or(m.is(m.l4(0, 1), 8), m.is(m.l4(0, 1), 128))
		reply = m.And(m.Not(question), m.Var("reply", 0))
	}
	for check := range packet.NumChecks {
		if packet.SenderChecks.Has(check) {
			m.failed[check] = m.And(m.failed[check], m.Not(reply))
		}
	}
}

// rules evaluates the checks, the rules in their order, and the default.
func (m *meaning) rules() {
	type reason struct{ cond, decision, protected *smt.Term }
	var reasons []reason
	open := m.True() // nothing has decided so far
	add := func(cond *smt.Term, slot uint32, v ir.Verdict, protected bool) {
		m.decides[slot] = m.Or(orFalse(m.Context, m.decides[slot]), m.And(open, cond))
		m.gets[v] = m.Or(orFalse(m.Context, m.gets[v]), m.And(open, cond))
		reasons = append(reasons, reason{cond, m.n(uint64(image.Decision(slot, uint8(v)))), m.Bool(protected)})
	}
	m.observed = m.False()
	watched := m.False()
	for check := range packet.NumChecks {
		if m.program.Checks.Has(check) {
			add(m.failed[check], uint32(check), ir.Drop, false)
			open = m.And(open, m.Not(m.failed[check]))
		}
		if m.program.Observed.Has(check) {
			m.noted[uint32(check)] = m.And(m.failed[check], m.Not(watched)) // the packets for which this check is the first that fails
			watched = m.Or(watched, m.failed[check])
		}
	}
	for slot, failed := range m.noted {
		m.noted[slot] = m.And(open, failed)
	}
	m.observed = m.And(open, watched)
	add(m.malformed, image.SlotDefault, m.program.Default, false)
	open = m.And(open, m.Not(m.malformed))
	m.matches = make([]*smt.Term, len(m.program.Rules))
	for i := range m.program.Rules {
		r := &m.program.Rules[i]
		matches := m.rule(i, r, open)
		m.matches[i] = matches
		if r.Observe {
			m.noted[m.world.slots[i]] = m.And(open, matches)
			m.observed = m.Or(m.observed, m.And(open, matches))
			continue
		}
		add(matches, m.world.slots[i], r.Verdict, r.Protect > 0)
		open = m.And(open, m.Not(matches))
	}
	add(m.True(), image.SlotDefault, m.program.Default, false)
	m.decision, m.protected = m.n(uint64(image.Decision(image.SlotDefault, uint8(m.program.Default)))), m.False()
	for i := len(reasons) - 1; i >= 0; i-- {
		m.decision = m.Ite(reasons[i].cond, reasons[i].decision, m.decision)
		m.protected = m.Ite(reasons[i].cond, reasons[i].protected, m.protected)
	}
}

// rule returns a formula that holds if all tests of a rule hold. It is used for the packets for which open holds: no earlier rule has decided these.
func (m *meaning) rule(i int, r *ir.Rule, open *smt.Term) *smt.Term {
	out := m.True()
	for _, f := range r.Match {
		if f.Field == packet.State && m.tellsReplies(r) {
			continue // this test uses packets that have left the host: see holds
		}
		if out = m.And(out, m.has(f)); out.IsFalse() {
			return out
		}
	}
	for _, a := range r.Src {
		out = m.And(out, m.address(a, false))
	}
	for _, a := range r.Dst {
		out = m.And(out, m.address(a, true))
	}
	if out.IsFalse() {
		return out
	}
	return m.holds(i, r, out, m.And(open, out))
}

// tellsReplies reports whether a rule recognizes replies by the packets that have left the host. netfilter uses conntrack instead.
func (m *meaning) tellsReplies(r *ir.Rule) bool { return r.Reply && m.world.netfilter == nil }

// holds adds the tests of a rule besides tests of addresses and fields. Tests of state outside of the frame are variables, or formulas of world.
func (m *meaning) holds(i int, r *ir.Rule, out, open *smt.Term) *smt.Term {
	free := func(what string) {
		out = m.And(out, m.Var(fmt.Sprintf("%s.%d", what, i), 0))
	}
	if r.Until != 0 {
		free("not_over")
	}
	if r.Sources != nil {
		out = m.And(out, m.withinAny(m.source, r.Sources))
	}
	for n := range r.Names {
		free(fmt.Sprintf("names.%d", n))
	}
	for n := range r.Payload {
		if m.world.netfilter != nil {
			out = m.And(out, m.world.netfilter.payload(m.decoded, &r.Payload[n]))
		} else {
			free(fmt.Sprintf("payload.%d", n))
		}
	}
	if r.Connections != nil {
		free("crowded")
	}
	if r.Unanswered {
		free("unanswered")
	}
	if m.tellsReplies(r) {
		out = m.And(out, m.world.isReply(m))
	}
	if r.Asks != ir.NoFlood {
		out = m.And(out, m.world.asked(m, r))
	}
	if len(r.Over) == 0 || r.Asks == ir.AsksSpent {
		return out
	}
	asked, over := m.And(open, out), m.False()
	for _, limit := range r.Over {
		before := m.charged[limit]
		if before == nil {
			before = m.False()
		}
		m.charged[limit] = m.Or(before, m.And(asked, m.Not(over)))
		over = m.Or(over, m.exceeded(limit))
	}
	return m.And(out, over)
}

// exceeded returns a formula that holds if a packet exceeds a limit.
func (m *meaning) exceeded(limit int) *smt.Term { return m.Var(fmt.Sprintf("over.%d", limit), 0) }

// address returns a formula that holds if an address is in the sets of a rule's test.
func (m *meaning) address(a ir.AddrMatch, destination bool) *smt.Term {
	in := m.False()
	var static []int
	for _, set := range a.Sets {
		if m.program.Sets[set].Dynamic != nil {
			in = m.Or(in, m.member(set, destination))
		} else {
			static = append(static, set)
		}
	}
	if len(static) > 0 {
		in = m.Or(in, m.static(static, destination))
	}
	if a.Not {
		return m.Not(in)
	}
	return in
}

// static returns a formula that holds if an address is in any of the static sets. For a source, the class determines this. For the destination of a
// frame, nothing is known.
func (m *meaning) static(sets []int, destination bool) *smt.Term {
	if m.world.netfilter != nil {
		in := m.False()
		for _, set := range sets {
			in = m.Or(in, m.member(set, destination))
		}
		return in
	}
	if !destination || m.both {
		if t := m.world.inSets(m.Context, classVar(destination), sets); t != nil {
			return t
		}
	}
	side := "source"
	if destination {
		side = "destination"
	}
	return m.Var(fmt.Sprintf("%s_in_%v", side, sets), 0) // arbitrary, because the entry leaves the destination to general()
}

// member returns a formula that holds if an address is in a dynamic set. It looks up the address in the memory of the set, with the program's
// function.
func (m *meaning) member(set int, destination bool) *smt.Term {
	bytes := m.source
	if destination {
		bytes = m.dest
	}
	if m.world.netfilter != nil {
		return m.world.netfilter.member(m.decoded, set, bytes)
	}
	hi, lo := m.halves(bytes)
	number, ok := m.world.dynamic[set]
	if !ok {
		return m.Var(fmt.Sprintf("unasked_set.%d.%v", set, destination), 0)
	}
	return m.Apply("member", 0, m.n(uint64(number)), hi, lo)
}
