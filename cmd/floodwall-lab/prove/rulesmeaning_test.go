// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// drawn returns a random answer, which is always the same for the same arguments.
func drawn(salt uint64, about ...uint64) bool {
	h := fnv.New64a()
	for _, n := range append(about, salt) {
		h.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), byte(n >> 32), byte(n >> 40), byte(n >> 48), byte(n >> 56)})
	}
	return h.Sum64()>>20&1 == 1
}

func halvesOf(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	for i := range 8 {
		hi, lo = hi<<8|uint64(b[i]), lo<<8|uint64(b[8+i])
	}
	return hi, lo
}

// TestRulesMeaning compares the formulas of the rules with Eval, for random packets that match rules. It compares the decision, the charged limits,
// and the slots in which a packet is observed. The results of functions of state are random. With tables, it makes one call after the other, as
// decide_all() does.
func TestRulesMeaning(t *testing.T) {
	r, _ := subject.Seeded(t)
	compared, conditionals := 0, 0
	policies, packets := 4, 100
	if os.Getenv("FLOODWALL_PROVE") != "" {
		policies, packets = 10, 1000
	}
	for n := range policies {
		w := &subject.Writer{Rand: rand.New(rand.NewPCG(11, uint64(n))), Payload: true}
		text, _ := w.Policy(t, 12)
		s := subject.Lower(t, text)
		x, err := xdp.Generate(s.Program, xdp.Options{Form: forms[n%2]})
		if err != nil {
			t.Fatal(err)
		}
		proof, err := NewSubject(s.Program, x)
		if err != nil {
			t.Fatal(err)
		}
		hints := subject.RuleHints(s, w)
		queries := map[bool]*rulesQuery{}
		for range packets {
			pkt := packet.Decode(packet.Random(r, hints[r.IntN(len(hints))]))
			v6 := pkt.Value[packet.Family] == packet.FamilyIPv6
			if pkt.Kind != packet.IP {
				continue
			}
			if queries[v6] == nil {
				if queries[v6], err = proof.rulesQuery(v6, proof.rules, nil); err != nil {
					t.Fatal(err)
				}
			}
			compared++
			conditionals += sameAsEval(t, proof, queries[v6], &pkt, r.Uint64())
		}
	}
	if compared < policies*packets/2 || conditionals < policies*packets/20 {
		t.Errorf("%d packets were compared, which asked for %d conditions", compared, conditionals)
	}
}

// sameAsEval compares the formulas with Eval for a packet. It returns the number of conditions tested.
func sameAsEval(t *testing.T, s *Subject, q *rulesQuery, pkt *packet.Packet, salt uint64) (asked int) {
	t.Helper()
	p, m := *s.Program, q.run.meaning
	p.Checks, p.Observed = 0, 0
	if drawn(salt, 1) {
		pkt.Value[packet.State] = packet.StateEstablished
	}
	charged, observed := map[int]bool{}, map[int]bool{}
	world := ir.World{
		Member: func(set int, a netip.Addr) bool {
			hi, lo := halvesOf(a)
			return drawn(salt, 2, uint64(s.world.dynamic[set]), hi, lo)
		},
		Over: func(limit int, _ *packet.Packet) bool {
			charged[limit] = true
			return drawn(salt, 3, uint64(limit))
		},
		Observe: func(r ir.Reason) { observed[int(s.world.slots[r.Index])] = true },
		Known:   func(*packet.Packet) bool { return drawn(salt, 4) },
		Proved:  func(flood int, _ *packet.Packet) bool { return drawn(salt, 5, uint64(flood)) },
		Proves:  func(flood int, _ *packet.Packet) bool { return drawn(salt, 6, uint64(flood)) },
		Served:  func(flood int, _ *packet.Packet) bool { return drawn(salt, 7, uint64(flood)) },
		Calm:    func(flood int, _ *packet.Packet) bool { return drawn(salt, 8, uint64(flood)) },
		Spent:   func(limit int, _ *packet.Packet) bool { return drawn(salt, 9, uint64(limit)) },

		Answered:   func(flood int, _ *packet.Packet) bool { return drawn(salt, 11, uint64(flood)) },
		Again:      func(flood int, _ *packet.Packet) bool { return drawn(salt, 12, uint64(flood)) },
		Unanswered: func(*packet.Packet) bool { return drawn(salt, 10) },
	}
	model := rulesModel(s, q, pkt, salt, &p, world)
	charged, observed = map[int]bool{}, map[int]bool{}
	verdict, reason := p.Eval(pkt, world)
	want := subject.SlotOf(reason)<<8 | uint32(verdict)
	decision, effects := uint32(model.Eval(m.decision)), m.effects
	for m.named && decision&conditional != 0 { // decide_all() of bpf/floodwall.c
		rule := int(model.Eval(m.rule))
		asked++
		if effects == nil || asked == 1 {
			effects = map[int]*smt.Term{}
		}
		if model.Eval(q.run.asks(q.run.conditions.rules[rule], m.True(), effects)) == 1 {
			break
		}
		for place, from := range m.from {
			if from == rule+1 {
				model.Vars["first"] = uint64(place)
			}
		}
		decision = uint32(model.Eval(m.decision))
	}
	for key, e := range effects {
		if !m.named && model.Eval(e) == 1 {
			asked++
		}
		switch is := model.Eval(e) == 1; {
		case key < askedAgain && is != charged[key]:
			t.Fatalf("limit %d is charged by Eval: %t, by the formula: %t", key, charged[key], is)
		case key >= observedAt && key < questionAt && is != observed[key-observedAt]:
			t.Fatalf("slot %d is observed by Eval: %t, by the formula: %t", key-observedAt, observed[key-observedAt], is)
		}
	}
	if slot, got := image.SlotAndVerdict(decision); slot<<8|uint32(got) != want {
		t.Fatalf("Eval says slot %d, verdict %s; the formula slot %d, verdict %d\n%v", want>>8, verdict, slot, got, pkt.Value)
	}
	return asked
}

// rulesModel returns a model with the fields of a packet, and with the result of Eval for each part of a condition.
func rulesModel(s *Subject, q *rulesQuery, pkt *packet.Packet, salt uint64, p *ir.Program, world ir.World) *smt.Model {
	m := &smt.Model{Vars: map[string]uint64{}, Apply: func(_ string, args []uint64) uint64 {
		return flag(drawn(salt, 2, args[0], args[1], args[2]))
	}}
	for f := range packet.Field(packet.NumKeys) {
		m.Vars[f.String()] = uint64(pkt.Value[f])
	}
	meaning := q.run.meaning
	v6 := meaning.kind.v6
	for _, destination := range []bool{false, true} {
		a := pkt.Src
		if destination {
			a = pkt.Dst
		}
		hi, lo := halvesOf(a)
		class := uint16(0)
		if !v6 {
			class = s.world.tables.class4(uint32(lo))
		} else if len(s.world.tables.memory[image.Buckets6]) > 0 {
			class = s.world.tables.class6(wide{hi, lo})
		}
		m.Vars[classVar(destination)] = indexOf(s.world.classes.of(v6), class)
		for i, b := range meaning.side(destination) {
			m.Vars[b.Name] = uint64(a.AsSlice()[i])
		}
	}
	holds := func(r ir.Rule) uint64 { // a rule that tests only one part of a condition matches
		one := *p
		r.Verdict = ir.Drop
		one.Rules, one.Default = []ir.Rule{r}, ir.Pass
		verdict, _ := one.Eval(pkt, world)
		return uint64(verdict)
	}
	for i, c := range q.run.conditions.rules {
		r := &p.Rules[i]
		for n := range c.payload {
			positive := r.Payload[n]
			positive.Not = false
			m.Vars[c.payload[n].name()] = holds(ir.Rule{Payload: []ir.PayloadMatch{positive}})
		}
		if c.names != "" {
			m.Vars[c.names] = holds(ir.Rule{Names: r.Names, Unanswered: r.Unanswered})
		}
		m.Vars["reply"] = flag(pkt.Value[packet.State] == packet.StateEstablished)
		for _, limit := range c.limits {
			m.Vars[overVar(limit, c.judged)] = flag(drawn(salt, 3, uint64(limit)))
		}
		if c.until != 0 {
			m.Vars[untilVar(c.until)] = 1
		}
		if c.asks != ir.NoFlood {
			m.Vars[c.question()] = holds(ir.Rule{Asks: r.Asks, Flood: r.Flood, Over: spentOnly(r)})
		}
	}
	return m
}

// spentOnly returns the limits of a rule that tests whether a limit is spent.
func spentOnly(r *ir.Rule) []int {
	if r.Asks == ir.AsksSpent {
		return r.Over
	}
	return nil
}
