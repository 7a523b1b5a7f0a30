package prove

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// rulesMeaning is what ir.Program.Eval says of a packet that passes the checks, by its fields and addresses: of which rule it is. It follows Eval, and
// nothing of the compiler.
//
// The tables of rules call no conditions. They name the one of the first rule whose tests hold, and where to go on if it does not hold: decide_all() of
// bpf/floodwall.c asks it, and calls decide() again. So what is said of one call is by the rules from one on, and the calls together are Eval by
// induction. Straight code asks conditions itself.
type rulesMeaning struct {
	*meaning
	named     bool              // whether conditions are named, and not called
	from      map[uint32]int    // of each place to go on at, the rule
	mostFirst int               // the last such place
	effects   effects           // what Eval charges, observes and asks
	decision  *smt.Term         // 32 bits
	rule      *smt.Term         // 32 bits: the rule that decides, and the number of rules for the default
	readable  *smt.Term         // what C promises
	asked     map[int]*smt.Term // for each conditional rule, whether its condition is the one that is named
}

// packetOf is struct packet as parse() leaves it, of a family: any value of each field, and any addresses.
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

// meanRules makes the formulas of what the rules say. w is the world of the packet.
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

// side are the bytes of an address.
func (m *rulesMeaning) side(destination bool) []*smt.Term {
	if destination {
		return m.dest
	}
	return m.source
}

// bounds are what C promises of fields: each value is below Field.Size().
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

// places finds where decide() may be told to go on: at the first alternative, and where a rule whose condition does not hold says, which stands for all
// rules behind that one. Two rules that say the same place would be a mistake in the tables.
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

// reached is whether a rule is one of those that this call is about.
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

// tests is whether all tests of addresses and fields of a rule hold.
func (m *rulesMeaning) tests(r *ir.Rule) *smt.Term {
	out := m.True()
	for _, f := range r.Match {
		if f.Field == packet.State && r.Reply {
			continue // the condition asks it
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

// decide goes through the rules in their order.
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
