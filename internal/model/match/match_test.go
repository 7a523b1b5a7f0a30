// SPDX-License-Identifier: Apache-2.0

package match

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/test/testutil"
)

// tested are the fields of the rules of these tests, each with values that packets often have.
var tested = map[packet.Field][]uint32{
	packet.Family:   {packet.FamilyIPv4, packet.FamilyIPv6},
	packet.Proto:    {packet.ProtoICMP, packet.ProtoTCP, packet.ProtoUDP, 47, packet.ProtoICMPv6},
	packet.DPort:    {80, packet.PortUDP + 53, packet.PortUDP + 80, packet.PortNone},
	packet.SPort:    {53, packet.PortUDP + 53, packet.PortNone},
	packet.Fragment: {packet.FragmentNone, packet.FragmentFirst, packet.FragmentLater},
	packet.Flags:    {0x02, 0x10, 0x12, 0x18, packet.FlagsNone},
	packet.ICMP:     {packet.EchoRequest << 8, packet.ICMPv6 + packet.EchoRequestV6<<8, packet.ICMPNone},
	packet.MSS:      {536, 1460, packet.MSSMissing, packet.MSSNone},
}

// sets are the sets of the rules. Only the last one can change while a program runs.
var sets = []ir.Set{
	{Static: addrSet("192.0.2.0/24", "2001:db8::/32")}, {Static: addrSet("192.0.2.128/25")}, {Static: addrSet("198.51.100.0/24")},
	{Static: addrSet("2001:db8::/64")}, {Static: addrSet("192.0.2.0/25"), Live: true},
}

func addrSet(prefixes ...string) *addrs.Set {
	var b addrs.Builder
	for _, p := range prefixes {
		if err := b.Add(netip.MustParsePrefix(p)); err != nil {
			panic(err)
		}
	}
	return b.Set()
}

// scene makes random rules and packets.
type scene struct{ *rand.Rand }

// rule returns a rule with up to four tests of fields, and with tests of addresses. A test has some usual values, or all values but those.
func (s scene) rule() *ir.Rule {
	r := &ir.Rule{Name: "it", Verdict: ir.Drop}
	fields := make([]packet.Field, 0, len(tested))
	for f := range tested {
		fields = append(fields, f)
	}
	slices.Sort(fields) // so that a seed gives the same rules each time
	s.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	for _, f := range fields[:s.IntN(5)] {
		var list []ir.Range
		for range 1 + s.IntN(2) {
			v := tested[f][s.IntN(len(tested[f]))]
			list = append(list, ranges.Span(v, min(v+s.Uint32N(3), f.Size()-1)))
		}
		list = ranges.Normalize(list)
		if s.IntN(3) == 0 {
			list = ranges.Complement(list, f.Size())
		}
		r.Match = append(r.Match, ir.Match{Field: f, Values: list})
	}
	for _, side := range []*[]ir.AddrMatch{&r.Src, &r.Dst} {
		for range s.IntN(2) * s.IntN(3) {
			*side = append(*side, ir.AddrMatch{Sets: s.Perm(len(sets))[:1+s.IntN(2)], Not: s.IntN(3) == 0})
		}
	}
	return r
}

// packet returns a packet whose header is complete.
func (s scene) packet() packet.Packet {
	hints := packet.Hints{Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64"), netip.MustParsePrefix("198.51.100.0/24")}}
	for f, values := range tested {
		hints.Values[f] = values
	}
	for {
		p := packet.RandomSpec(s.Rand, hints).Packet()
		if p.Kind == packet.IP && !p.Failed.Has(packet.Truncated) {
			return p
		}
	}
}

// drops reports whether a rule matches a packet, by ir.Eval.
func drops(r *ir.Rule, p *packet.Packet) bool {
	program := ir.Program{Sets: sets, Rules: []ir.Rule{*r}, Default: ir.Pass}
	verdict, _ := program.Eval(p, ir.World{})
	return verdict == ir.Drop
}

// kindOf returns the kind of a packet.
func kindOf(p *packet.Packet) Kind {
	switch {
	case p.Value[packet.Fragment] == packet.FragmentLater:
		return LaterFragment
	case p.Value[packet.DPort] < packet.PortUDP:
		return TCP
	case p.Value[packet.DPort] < packet.PortNone:
		return UDP
	case p.Value[packet.ICMP] < packet.ICMPv6:
		return ICMP
	case p.Value[packet.ICMP] < packet.ICMPNone:
		return ICMPv6
	case p.Value[packet.Family] == packet.FamilyIPv4:
		return OtherIPv4
	}
	return OtherIPv6
}

// in reports whether a packet is in a branch. In a branch of a kind, ports and types of ICMP are without the offset of the kind.
func in(b *Branch, p *packet.Packet) bool {
	if b.Kind != Any && b.Kind != kindOf(p) || !slices.Contains(b.Families, p.Value[packet.Family]) {
		return false
	}
	base := map[packet.Field]uint32{}
	switch b.Kind {
	case UDP:
		base[packet.DPort], base[packet.SPort] = packet.PortUDP, packet.PortUDP
	case ICMPv6:
		base[packet.ICMP] = packet.ICMPv6
	}
	return !slices.ContainsFunc(b.Tests, func(m ir.Match) bool { return !m.Has(p.Value[m.Field] - base[m.Field]) })
}

// TestPairs compares Overlap and Covers with packets: two rules that match one packet overlap, and a rule matches each packet that a rule matches
// which it covers. Both answers must be certain often enough to be of use.
func TestPairs(t *testing.T) {
	s := scene{testutil.Random(t)}
	both, apart, covered, implied := 0, 0, 0, 0
	for range testutil.Scaled(4000, 100_000) {
		a, b := s.rule(), s.rule()
		if s.IntN(2) == 0 && len(a.Match) > 0 { // b is a with another test, so a covers it
			c := *a
			c.Match = append(slices.Clone(a.Match), b.Match...)
			slices.SortStableFunc(c.Match, func(x, y ir.Match) int { return cmp.Compare(x.Field, y.Field) })
			c.Match = slices.CompactFunc(c.Match, func(x, y ir.Match) bool { return x.Field == y.Field })
			b = &c
		}
		overlap, covers := Overlap(sets, a, b), Covers(sets, a, b)
		if !overlap {
			apart++
		}
		if covers {
			covered++
		}
		for range 20 {
			p := s.packet()
			matchesA, matchesB := drops(a, &p), drops(b, &p)
			if matchesA && matchesB {
				both++
				if !overlap || !Overlap(sets, b, a) {
					t.Fatalf("rules %+v and %+v do not overlap, and both match %+v", a, b, p.Value)
				}
			}
			if covers && matchesB {
				implied++
				if !matchesA {
					t.Fatalf("rule %+v covers %+v, and does not match %+v", a, b, p.Value)
				}
			}
		}
	}
	if both < 1000 || apart < 500 || covered < 500 || implied < 500 {
		t.Errorf("%d packets match both rules, %d pairs do not overlap, %d rules cover another, for %d packets: too few", both, apart, covered, implied)
	}
}

// TestParts takes rules apart. A packet that a rule matches is in exactly one branch, and any other packet is in none. The same holds for the kinds
// of the payload. Protocols and Families name the packet's.
func TestParts(t *testing.T) {
	s := scene{testutil.Random(t)}
	kinds := map[Kind]int{}
	for range testutil.Scaled(4000, 100_000) {
		r := s.rule()
		fields := *r
		fields.Src, fields.Dst = nil, nil
		branches, parts := Branches(r), PayloadKinds(r)
		for range 20 {
			p := s.packet()
			want := 0
			if drops(&fields, &p) {
				want = 1
				kinds[kindOf(&p)]++
			}
			if n := countIf(branches, func(b *Branch) bool { return in(b, &p) }); n != want {
				t.Fatalf("rule %+v: %d branches have %+v, and not %d: %+v", r, n, p.Value, want, branches)
			}
			if !drops(r, &p) {
				want = 0
			}
			if n := countIf(parts, func(k *PayloadKind) bool { return kindOf(&p) == k.Kind && drops(&k.Rule, &p) }); n != want {
				t.Fatalf("rule %+v: %d kinds have %+v, and not %d: %+v", r, n, p.Value, want, parts)
			}
			if n := countIf(parts, func(k *PayloadKind) bool { return drops(&k.Rule, &p) }); n != want {
				t.Fatalf("rule %+v: %d parts match %+v, and not %d: %+v", r, n, p.Value, want, parts)
			}
			if want == 0 {
				continue
			}
			if m := (ir.Match{Field: packet.Proto, Values: Protocols(r)}); !m.Has(p.Value[packet.Proto]) {
				t.Fatalf("rule %+v matches %+v, and its protocols are %v", r, p.Value, m.Values)
			}
			if list := Families(sets, r); !slices.Contains(list, p.Value[packet.Family]) {
				t.Fatalf("rule %+v matches %+v, and its families are %v", r, p.Value, list)
			}
		}
	}
	for k := TCP; k <= LaterFragment; k++ {
		if kinds[k] < 100 {
			t.Errorf("only %d packets of kind %d match", kinds[k], k)
		}
	}
}

func countIf[T any](list []T, is func(*T) bool) (n int) {
	for i := range list {
		if is(&list[i]) {
			n++
		}
	}
	return n
}

// TestLiveSet checks that nothing is concluded from the content of a set that can change.
func TestLiveSet(t *testing.T) {
	from := func(set int) *ir.Rule { return &ir.Rule{Src: []ir.AddrMatch{{Sets: []int{set}}}} }
	for _, test := range []struct {
		name            string
		a, b            int
		overlap, covers bool
	}{
		{"a part of it", 0, 1, true, true},
		{"more than it", 1, 0, true, false},
		{"other addresses", 0, 2, false, false},
		{"a set that can change, within the other now", 0, 4, true, false},
		{"a set that can change, without common addresses now", 1, 4, true, false},
		{"itself, although it can change", 4, 4, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Overlap(sets, from(test.a), from(test.b)); got != test.overlap {
				t.Errorf("Overlap: %t", got)
			}
			if got := Covers(sets, from(test.a), from(test.b)); got != test.covers {
				t.Errorf("Covers: %t", got)
			}
		})
	}
}
