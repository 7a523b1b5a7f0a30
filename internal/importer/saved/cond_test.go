// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// askedValues are values of fields that conditions of these tests have.
var askedValues = map[packet.Field][]uint32{
	packet.Family:   {packet.FamilyIPv4, packet.FamilyIPv6},
	packet.Proto:    {ProtoICMP, ProtoTCP, ProtoUDP, 47, ProtoICMPv6},
	packet.DPort:    {0, 80, MaxPort, packet.PortUDP, packet.PortUDP + 53, packet.PortNone},
	packet.SPort:    {53, packet.PortUDP + 53, packet.PortNone},
	packet.Fragment: {packet.FragmentNone, packet.FragmentFirst, packet.FragmentLater},
	packet.Flags:    {0, 0x02, 0x10, 0x12, packet.FlagsNone - 1, packet.FlagsNone},
	packet.ICMP:     {packet.EchoRequest << 8, packet.ICMPv6 + packet.EchoRequestV6<<8, packet.ICMPNone},
	packet.MSS:      {536, 1460, packet.MSSMissing, packet.MSSNone},
	packet.TTL:      {0, 64, 255},
}

// Addresses of the conditions: ranges, sets, one of which other programs fill, and the host's own.
var (
	askedRanges = []netipx.IPRange{addrsOf("192.0.2.0/24"), addrsOf("192.0.2.128/25"), addrsOf("198.51.100.0/24"), addrsOf("2001:db8::/64"), addrsOf("0.0.0.0/0"), addrsOf("::/0"), addrsOf("224.0.0.0/4")}
	askedSets   = []*Set{
		{Name: "four", Family: IPv4, Dims: []Dim{DimAddr}, Ranges: []netipx.IPRange{addrsOf("192.0.2.64/26"), addrsOf("198.51.100.0/25")}},
		{Name: "six", Family: IPv6, Dims: []Dim{DimAddr}, Ranges: []netipx.IPRange{addrsOf("2001:db8::/65")}},
		{Name: "filled", Family: IPv4, Dims: []Dim{DimAddr}, Dynamic: true},
	}
	filled = addrsOf("192.0.2.0/26")
	own    = []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")}
)

func addrsOf(prefix string) netipx.IPRange {
	return netipx.RangeOfPrefix(netip.MustParsePrefix(prefix))
}

// chance makes random conditions and packets.
type chance struct{ *rand.Rand }

func pickOf[T any](r chance, list []T) T { return list[r.IntN(len(list))] }

// cond returns a condition with some tests of fields and of addresses.
func (r chance) cond() (c Cond) {
	for range r.IntN(4) {
		f := packet.Field(r.IntN(int(packet.NumFields)))
		if askedValues[f] == nil {
			continue
		}
		var spans Values
		for range 1 + r.IntN(2) {
			v := pickOf(r, askedValues[f])
			spans = append(spans, Span{First: v, Last: min(v+r.Uint32N(3), f.Size()-1)})
		}
		if f == packet.DPort && r.IntN(3) == 0 {
			spans = slices.Clone(pickOf(r, []Values{TCPPorts, UDPPorts}))
		}
		if spans = Normalize(spans); r.IntN(3) == 0 {
			spans = spans.Not(f)
		}
		c = c.With(f, spans)
	}
	if r.IntN(2) == 0 {
		c = c.From(r.addrs())
	}
	if r.IntN(3) == 0 {
		c = c.To(r.addrs())
	}
	return c
}

func (r chance) addrs() AddrTest {
	a := &AddrSet{}
	switch r.IntN(4) {
	case 0:
		a.Sets = []*Set{pickOf(r, askedSets)}
	case 1:
		a.Local = true
	}
	if a.empty() || r.IntN(3) == 0 {
		a.Ranges = Join([]netipx.IPRange{pickOf(r, askedRanges), pickOf(r, askedRanges)})
	}
	if r.IntN(3) == 0 {
		return AddrTest{Out: a}
	}
	return AddrTest{In: a}
}

// packet returns a packet whose header is complete. Its addresses are near those of the conditions.
func (r chance) packet() packet.Packet {
	hints := packet.Hints{Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/32"), netip.MustParsePrefix("2001:db8::9/128")}}
	for _, a := range askedRanges[:4] {
		p, _ := a.Prefix()
		hints.Addrs = append(hints.Addrs, p)
	}
	for f, values := range askedValues {
		hints.Values[f] = values
	}
	for {
		p := packet.RandomSpec(r.Rand, hints).Packet()
		if p.Kind == packet.IP && !p.Failed.Has(packet.Truncated) {
			return p
		}
	}
}

// holds reports whether a packet meets a condition, part by part.
func holds(c *Cond, p *packet.Packet) bool {
	for f, v := range c.Field {
		if v != nil && !slices.ContainsFunc(v, func(s Span) bool { return s.First <= p.Value[f] && p.Value[f] <= s.Last }) {
			return false
		}
	}
	return passes(c.Src, p.Src) && passes(c.Dst, p.Dst)
}

func passes(t AddrTest, a netip.Addr) bool {
	return (t.In == nil || has(t.In, a)) && (t.Out == nil || !has(t.Out, a))
}

func has(s *AddrSet, a netip.Addr) bool {
	of := func(list []netipx.IPRange) bool {
		return slices.ContainsFunc(list, func(r netipx.IPRange) bool { return r.Contains(a) })
	}
	return of(s.Ranges) || s.Local && slices.Contains(own, a) ||
		slices.ContainsFunc(s.Sets, func(s *Set) bool { return of(s.Ranges) || s.Dynamic && filled.Contains(a) })
}

// TestConds compares the operations of conditions with packets. A condition that the policy cannot express is left out, as its rest is not exact.
func TestConds(t *testing.T) {
	r := chance{testutil.Random(t)}
	both, left, covered, never, inexact := 0, 0, 0, 0, 0
	for range testutil.Scaled(5000, 100_000) {
		c, d := r.cond(), r.cond()
		if r.IntN(3) == 0 {
			d = c.And(d)
		}
		and, f := c.And(d), pickOf(r, []Family{IPv4, IPv6})
		rest, covers, implied := c.Without(d, f), c.Covers(&d), d.Implied()
		if len(and.Unknown) > 0 || slices.ContainsFunc(rest, func(c Cond) bool { return len(c.Unknown) > 0 }) {
			inexact++
			continue
		}
		normal, possible := c.Possible(f)
		if again, ok := normal.Possible(f); possible && (!ok || !reflect.DeepEqual(again, normal)) {
			t.Fatalf("the normal form of %+v is %+v, and the normal form of that is %+v", c, normal, again)
		}
		if !possible {
			never++
		}
		for range 20 {
			p := r.packet()
			is, isToo := holds(&c, &p), holds(&d, &p)
			if is && isToo {
				both++
			}
			if holds(&and, &p) != (is && isToo) {
				t.Fatalf("%+v and %+v are %+v: wrong about %+v", c, d, and, p)
			}
			if isToo && !holds(&Cond{Field: implied}, &p) {
				t.Fatalf("%+v implies %v: wrong about %+v", d, implied, p)
			}
			if covers && isToo {
				covered++
				if !is {
					t.Fatalf("%+v covers %+v, but not %+v", c, d, p)
				}
			}
			if of := d.Families(); isToo && of != 0 && of&familyOf(p.Src) == 0 {
				t.Fatalf("the families of %+v are %d: wrong about %+v", d, of, p)
			}
			if familyOf(p.Src) != f {
				continue
			}
			if is != (possible && holds(&normal, &p)) {
				t.Fatalf("the normal form of %+v is %+v, %t: wrong about %+v", c, normal, possible, p)
			}
			want := 0
			if is && !isToo {
				want = 1
				left++
			}
			n := 0
			for i := range rest {
				if holds(&rest[i], &p) {
					n++
				}
			}
			if n != want {
				t.Fatalf("%+v without %+v: %d parts hold, and not %d, for %+v: %+v", c, d, n, want, p, rest)
			}
		}
	}
	t.Logf("%d packets of both, %d of the first alone, %d of what another covers; %d conditions that nothing meets, %d pairs without an equal", both, left, covered, never, inexact)
	if both < 3000 || left < 3000 || covered < 1000 || never < 100 || inexact > 2500 {
		t.Error("too few cases")
	}
}

// TestOtherMessages takes echo requests away from all packets. What is left has the packets of the other family's ICMP: a packet of IPv6 with the
// protocol number of ICMP has no message, and one of IPv4 with that of ICMPv6 has none.
func TestOtherMessages(t *testing.T) {
	for _, test := range []struct {
		family         Family
		proto, message uint32
	}{
		{IPv6, ProtoICMP, packet.EchoRequest << 8},
		{IPv4, ProtoICMPv6, packet.ICMPv6 + packet.EchoRequestV6<<8},
	} {
		ping := Cond{}.With(packet.Proto, Only(test.proto)).With(packet.ICMP, Only(test.message))
		p := packet.Packet{Kind: packet.IP, Src: own[0], Dst: own[0]}
		if test.family == IPv6 {
			p.Src, p.Dst, p.Value[packet.Family] = own[1], own[1], packet.FamilyIPv6
		}
		p.Value[packet.DPort], p.Value[packet.SPort], p.Value[packet.Flags] = packet.PortNone, packet.PortNone, packet.FlagsNone
		p.Value[packet.ICMP], p.Value[packet.MSS], p.Value[packet.Proto] = packet.ICMPNone, packet.MSSNone, test.proto
		left := Cond{}.Without(ping, test.family)
		if !slices.ContainsFunc(left, func(c Cond) bool { return holds(&c, &p) }) {
			t.Errorf("family %d, protocol %d: no part of %+v has a packet without message", test.family, test.proto, left)
		}
	}
}
