// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// conditions returns the conditions of a rule in this family. A packet matches the rule if any of them holds. A rule that tests an L4 header has a
// condition for each protocol with such a header.
func (f *familyBuilder) conditions(r *ir.Rule) (out []condition) {
	empty := func(m ir.Match) bool { return len(m.Values) == 0 }
	if !(ir.Match{Values: match.Values(r, packet.Family)}).Has(f.family) || slices.ContainsFunc(r.Match, empty) {
		return nil
	}
	if len(r.Payload) > 0 {
		return f.withPayload(r)
	}
	add := func(c condition) {
		if len(c.any) > 0 {
			out = append(out, c)
		}
	}
	addresses := f.addresses(r)
	if !asksHeader(r) {
		for _, c := range f.plain(r) {
			add(addresses.and(c))
		}
		return out
	}
	for kind := match.TCP; kind <= match.ICMPv6; kind++ {
		tests, possible := match.KindTests(r, kind)
		if !possible || !slices.Contains(kind.Families(), f.family) {
			continue
		}
		for _, part := range match.BySYN(tests) {
			add(addresses.and(f.header(kind, part)))
		}
	}
	return out
}

// headerless has the values of L4 header fields in a packet without an L4 header.
var headerless = map[packet.Field]uint32{
	packet.DPort: packet.PortNone, packet.SPort: packet.PortNone, packet.Flags: packet.FlagsNone, packet.ICMP: packet.ICMPNone,
	packet.MSS: packet.MSSNone,
}

// asksHeader reports whether a rule matches only packets with an L4 header.
func asksHeader(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Match, func(m ir.Match) bool { no, ofL4 := headerless[m.Field]; return ofL4 && !m.Has(no) })
}

// header returns the condition for packets with an L4 header of a kind.
func (f *familyBuilder) header(kind match.Kind, tests []ir.Match) condition {
	c := f.kind(kind)
	fragments := whole
	for _, m := range tests {
		switch m.Field {
		case packet.DPort, packet.SPort:
			c = c.and(condition{any: f.headerLines(m)})
		case packet.MSS:
			c = c.and(condition{any: mssLines(m)})
		case packet.Flags, packet.ICMP:
			opposite := m
			opposite.Values = kindComplement(m)
			c = c.and(f.eitherHeader(kind, f.headerLines(m), f.headerLines(opposite)))
		case packet.Fragment:
			fragments = m.Values
		default:
			c = c.and(f.scalar(m))
		}
	}
	return f.withHeader(kind, c, fragments)
}

// kindComplement returns all other values of a field. The values do not include the offset that encodes the kind.
func kindComplement(m ir.Match) []ir.Range {
	size := map[packet.Field]uint32{
		packet.DPort: packet.PortUDP, packet.SPort: packet.PortUDP, packet.Flags: packet.FlagsNone, packet.ICMP: packet.ICMPv6,
		packet.MSS: packet.MSS.Size(),
	}[m.Field]
	return ranges.Complement(m.Values, size)
}

// eitherHeader does the same as either, for tests of a header. If the opposite is a single line, it negates that line.
func (f *familyBuilder) eitherHeader(kind match.Kind, is, isNot []lineTests) condition {
	if len(isNot) == 1 && len(is) > 1 && len(isNot[0].header) == 1 {
		not := isNot[0]
		not.header = []string{"! " + not.header[0]}
		return all(not)
	}
	for i := range isNot {
		isNot[i].proto = kindProto[kind]
	}
	return f.either(is, isNot)
}

// kindProto has the protocols of the kinds that have a header.
var kindProto = map[match.Kind]string{match.TCP: "tcp", match.UDP: "udp", match.ICMP: "icmp", match.ICMPv6: "ipv6-icmp"}

// kind returns the test of the protocol of a kind and, in IPv4, the test that the packet has a header. The match tcp drops a later fragment that
// would overwrite a header (tcp_mt in the kernel's net/netfilter/xt_tcpudp.c), so it must not be applied to later fragments.
func (f *familyBuilder) kind(kind match.Kind) condition {
	a := lineTests{proto: kindProto[kind]}
	if f.family == packet.FamilyIPv4 {
		a.match, a.whole = []string{notLater}, true
	}
	return all(a)
}

// headerLines returns lines for the values of a field. The values do not include the offset that encodes the kind.
func (f *familyBuilder) headerLines(m ir.Match) []lineTests {
	switch m.Field {
	case packet.DPort, packet.SPort:
		return f.portTest(m)
	case packet.Flags:
		return flagLines(m.Values)
	}
	return f.icmpLines(m.Values)
}

// whole are the values of packet.Fragment for packets that are not later fragments.
var whole = []ir.Range{match.WithHeader}

// hasPorts is a test that TCP and UDP packets with a header pass.
var hasPorts = lineTests{match: []string{"-m multiport --dports 0:65535"}}

// withHeader adds the test of fragments to a condition on a header. It adds none if the tests of the header already exclude later fragments.
func (f *familyBuilder) withHeader(kind match.Kind, c condition, fragments []ir.Range) condition {
	if !slices.Equal(fragments, whole) {
		return c.and(f.fragment(fragments))
	}
	out := condition{not: c.not}
	for _, a := range c.any {
		switch {
		case a.whole:
			out.any = append(out.any, a)
		case kind == match.ICMPv6:
			out.any = append(out.any, all(a).and(f.fragment(whole)).any...)
		default:
			out.any = append(out.any, a.and(hasPorts))
		}
	}
	return out
}
