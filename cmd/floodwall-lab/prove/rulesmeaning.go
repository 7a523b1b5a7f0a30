// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// rulesMeaning is the result of ir.Program.Eval for a packet that passes the checks: the rule that decides the packet, as a formula of the packet's
// fields and addresses. It follows Eval, and uses nothing of the compiler.
//
// Tables of rules do not test conditions. They name the condition of the first rule whose tests hold, and the place at which to continue if that
// condition does not hold. decide_all() of bpf/floodwall.c tests the condition, and calls decide() again. So the formulas are about one call, which
// starts at one rule. By induction, all calls together equal Eval. Straight code tests conditions itself.
type rulesMeaning struct {
	*meaning
	named     bool              // conditions are named; false: the code tests them
	from      map[uint32]int    // the first rule of each place at which decide() continues
	mostFirst int               // the last place at which decide() continues
	effects   effects           // the charges, observations and questions of Eval
	decision  *smt.Term         // 32 bits
	rule      *smt.Term         // 32 bits: the rule that decides; for the default, the number of rules
	readable  *smt.Term         // the guarantees of the C code
	asked     map[int]*smt.Term // for each conditional rule: the named condition is the rule's own
}

// packetOf returns struct packet of a family as parse() leaves it: any value of each field, and any addresses.
func packetOf(c *smt.Context, v6 bool) *decoded {
	d := &decoded{Context: c, kind: kind{v6: v6}, malformed: c.False(), usual: c.True()}
	for i := range d.failed {
		d.failed[i] = c.False()
	}
	for f := range packet.Field(packet.NumKeys) {
		d.field[f] = fieldVar(c, f)
	}
	d.field[packet.Family] = d.n(flag(v6))
	n := 4
	if v6 {
		n = 16
	}
	for i := range n {
		d.source = append(d.source, c.Var(fmt.Sprintf("source.%02d", i), 8))
		d.dest = append(d.dest, c.Var(fmt.Sprintf("destination.%02d", i), 8))
	}
	return d
}

// meanRules makes the formulas of the rules. w is the world of the packet.
func meanRules(d *decoded, w *world, conditions *conditions, results []byte) (*rulesMeaning, error) {
	m := &rulesMeaning{
		meaning: &meaning{decoded: d, world: w, program: w.program, charged: map[int]*smt.Term{}, both: true},
		named:   results != nil, from: map[uint32]int{0: 0}, effects: effects{}, asked: map[int]*smt.Term{},
	}
	m.readable = m.bounds()
	if m.named {
		if err := m.places(results); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// side returns the bytes of an address.
func (m *rulesMeaning) side(destination bool) []*smt.Term {
	if destination {
		return m.dest
	}
	return m.source
}

// bounds returns the guarantees of the C code about fields: each value is below Field.Size().
func (m *rulesMeaning) bounds() *smt.Term {
	out := m.True()
	for f := range packet.Field(packet.NumKeys) {
		if f != packet.Family {
			out = m.And(out, m.ULT(m.field[f], m.n(uint64(f.Size()))))
		}
	}
	return out
}

// Layout of the map of results: internal/compile/xdp/tablecode.go.
const (
	resultBytes     = 16
	resultCondition = 4
	resultNext      = 8
)

// places finds the places at which decide() may have to continue: the first alternative, and for each rule the place to use when the condition of the
// rule does not hold. Such a place means all rules after that rule. If two rules have the same place, the tables are wrong.
func (m *rulesMeaning) places(results []byte) error {
	rules := map[uint32]int{}
	for i, slot := range m.world.slots {
		rules[slot] = i
	}
	for b := results; len(b) >= resultBytes; b = b[resultBytes:] {
		decision, next := native.Uint32(b), native.Uint32(b[resultNext:])
		rule, known := rules[decision>>8]
		if decision&conditional == 0 || !known {
			continue
		}
		if other, ok := m.from[next]; ok && other != rule+1 {
			return fmt.Errorf("the tables of rules go on at the same place, %d, behind rule %d and rule %d", next, rule, other-1)
		}
		if int(next) > len(results)/resultBytes {
			return fmt.Errorf("the tables of rules go on behind their end, at %d", next)
		}
		m.from[next] = rule + 1
		m.mostFirst = max(m.mostFirst, int(next))
	}
	is := m.False()
	for place := range m.from {
		is = m.Or(is, m.is(m.Var("first", 32), uint64(place)))
	}
	m.readable = m.And(m.readable, is)
	return nil
}

// reached returns a formula that holds if a rule is in the range of this call.
func (m *rulesMeaning) reached(rule int) *smt.Term {
	if !m.named {
		return m.True()
	}
	out := m.False()
	for place, from := range m.from {
		if from <= rule {
			out = m.Or(out, m.is(m.Var("first", 32), uint64(place)))
		}
	}
	return out
}

// tests returns a formula that holds if all tests of a rule for addresses and fields hold.
func (m *rulesMeaning) tests(r *ir.Rule) *smt.Term {
	out := m.True()
	for _, f := range r.Match {
		if f.Field == packet.State && r.Reply {
			continue // the condition of the rule has this test
		}
		if out = m.And(out, m.has(f)); out.IsFalse() {
			return out
		}
	}
	if _, moved := movedSources(m.program, r); !moved {
		for _, a := range r.Src {
			out = m.And(out, m.address(a, false))
		}
	}
	for _, a := range r.Dst {
		out = m.And(out, m.address(a, true))
	}
	return out
}

// decide evaluates the rules in their order.
func (m *rulesMeaning) decide(r *rulesRun) {
	p := m.program
	type end struct{ cond, decision, rule *smt.Term }
	var ends []end
	open := m.True()
	for i := range p.Rules {
		holds := m.And(m.reached(i), m.tests(&p.Rules[i]))
		want := ruleDecision(p, i, m.world.slots[i])
		condition := r.conditions.rules[i]
		switch {
		case condition == nil:
		case m.named:
			m.asked[i] = m.And(open, holds)
			want |= conditional
		default:
			holds = m.And(holds, r.asks(condition, m.And(open, holds), m.effects))
		}
		ends = append(ends, end{holds, m.n(uint64(want)), m.n(uint64(i))})
		open = m.And(open, m.Not(holds))
	}
	m.decision, m.rule = m.n(uint64(image.Decision(image.SlotDefault, uint8(p.Default)))), m.n(uint64(len(p.Rules)))
	for i := len(ends) - 1; i >= 0; i-- {
		m.decision, m.rule = m.Ite(ends[i].cond, ends[i].decision, m.decision), m.Ite(ends[i].cond, ends[i].rule, m.rule)
	}
}
