// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestArrange decides random packets by arranged lists of random rules. The first matching rule must be the same as in the original list, and few
// rules that do not match may be tested.
func TestArrange(t *testing.T) {
	lists, lookups, asked, whole := testutil.Scaled(150, 30_000), 0, 0, 0
	r := testutil.Random(t)
	for range lists {
		g := &generator{Rand: r, keys: 1 + r.IntN(31)}
		p := g.program(10 + r.IntN(60))
		nodes := plan.Arrange(p.Sets, g.rules(p))
		for range 60 {
			pkt := g.packet(t)
			v := visit{program: p, pkt: &pkt, found: -1}
			v.nodes(nodes)
			want := -1
			if _, reason := p.Eval(&pkt, ir.World{}); reason.Kind == ir.ReasonRule {
				want = reason.Index
			}
			if v.found != want {
				t.Fatalf("%+v: rule %d, want %d\n%s", pkt, v.found, want, p)
			}
			lookups += v.lookups
			if asked += v.asked; want < 0 {
				whole += len(p.Rules)
			} else {
				whole += want + 1
			}
		}
	}
	t.Logf("%d lookups, %d rules asked of %d", lookups, asked, whole)
	if lookups < 30*lists || asked > whole/2 {
		t.Errorf("want more lookups, and half of the rules asked at most")
	}
}

// visit is the evaluation of one packet in an arranged list.
type visit struct {
	program        *ir.Program
	pkt            *packet.Packet
	found          int
	lookups, asked int
}

func (v *visit) nodes(list []plan.Node) {
	for _, n := range list {
		if v.found >= 0 {
			return
		}
		if n.Lookup != nil {
			v.lookup(n.Lookup)
			continue
		}
		v.asked++
		one := *v.program
		one.Rules = one.Rules[n.Rule : n.Rule+1]
		if _, reason := one.Eval(v.pkt, ir.World{}); reason.Kind == ir.ReasonRule {
			v.found = n.Rule
		}
	}
}

func (v *visit) lookup(l *plan.Lookup) {
	v.lookups++
	family := int(v.pkt.Value[packet.Family])
	selects := map[plan.Key]func(plan.Element) bool{
		plan.Proto: numbered(v.pkt.Value[packet.Proto]),
		plan.DPort: numbered(v.pkt.Value[packet.DPort]),
		plan.SPort: numbered(v.pkt.Value[packet.SPort]),
		plan.Src:   addressed(v.pkt.Src, family),
		plan.Dst:   addressed(v.pkt.Dst, family),
	}[l.Key]
	if !l.Key.IsAddress() {
		family = 0
	}
	if l.Maps[family] == nil {
		return
	}
	for _, e := range l.Maps[family].Elements {
		if selects(e) {
			v.nodes(l.Lists[e.List])
			return
		}
	}
}

func numbered(n uint32) func(plan.Element) bool {
	return func(e plan.Element) bool { return e.First.Number() <= n && n <= e.Last.Number() }
}

func addressed(a netip.Addr, family int) func(plan.Element) bool {
	return func(e plan.Element) bool {
		first, last := e.First.Addr4(), e.Last.Addr4()
		if family == packet.FamilyIPv6 {
			first, last = e.First.Addr6(), e.Last.Addr6()
		}
		return first.Compare(a) <= 0 && a.Compare(last) <= 0
	}
}

// generator makes rules and packets from few values, so that packets often match.
type generator struct {
	*rand.Rand
	keys int // a bit mask of the keys that most rules test
}

var fields = []packet.Field{packet.DPort, packet.SPort}

func (g *generator) program(n int) *ir.Program {
	p := &ir.Program{Default: ir.Drop}
	for i := range n {
		r := ir.Rule{Name: fmt.Sprint(i), Verdict: ir.Verdict(g.IntN(2))}
		for k := range 5 {
			if (g.keys>>k&1 == 1) == (g.IntN(12) > 0) {
				g.add(p, &r, k)
			}
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

func (g *generator) add(p *ir.Program, r *ir.Rule, key int) {
	switch key {
	case 0:
		r.Match = append(r.Match, ir.Match{Field: packet.Proto, Values: ranges.Of(g.proto())})
	case 1, 2:
		base := uint32(g.IntN(2) * packet.PortUDP)
		first := base + uint32(g.IntN(40))
		r.Match = append(r.Match, ir.Match{Field: fields[key-1], Values: []ir.Range{ranges.Span(first, first+uint32(g.IntN(1+g.IntN(20))))}})
	default:
		var b addrs.Builder
		for range 1 + g.IntN(3) {
			a := g.addr(g.IntN(2))
			prefix, _ := a.Prefix(a.BitLen() - g.IntN(17))
			if err := b.Add(prefix); err != nil {
				panic(err)
			}
		}
		m := []ir.AddrMatch{{Sets: []int{len(p.Sets)}, Not: g.IntN(20) == 0}}
		p.Sets = append(p.Sets, ir.Set{Static: b.Set()})
		if key == 3 {
			r.Src = m
		} else {
			r.Dst = m
		}
	}
}

func (g *generator) proto() uint32 {
	return []uint32{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMP, packet.ProtoICMPv6, 47}[g.IntN(5)]
}

func (g *generator) addr(family int) netip.Addr {
	high, low := byte(g.IntN(4)), byte(g.IntN(256))
	if family == packet.FamilyIPv4 {
		return netip.AddrFrom4([4]byte{10, 0, high, low})
	}
	return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 14: high, 15: low})
}

func (g *generator) rules(p *ir.Program) (list []plan.Rule) {
	for i := range p.Rules {
		list = append(list, plan.Rule{Rule: &p.Rules[i], Lines: 1, Fixed: g.IntN(30) == 0})
	}
	return list
}

func (g *generator) packet(t *testing.T) packet.Packet {
	family := g.IntN(2)
	from, to := g.addr(family), g.addr(family)
	line := fmt.Sprintf("%s %s > %s", []string{"tcp", "udp"}[g.IntN(2)], netip.AddrPortFrom(from, uint16(g.IntN(60))),
		netip.AddrPortFrom(to, uint16(g.IntN(60))))
	if g.IntN(8) == 0 {
		line = fmt.Sprintf("%s %s > %s echo-request", []string{"icmp", "icmpv6"}[family], from, to)
	}
	s, err := packet.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return s.Packet()
}
