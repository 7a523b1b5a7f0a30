// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// plain returns the conditions of a rule that also matches packets without an L4 header, such as "not port 22". They do not include the conditions on
// addresses.
func (f *familyBuilder) plain(r *ir.Rule) (out []condition) {
	c := always()
	for _, m := range r.Match {
		_, ofL4 := headerless[m.Field]
		switch {
		case ofL4 || m.Field == packet.Proto || m.Field == packet.Family || isFull(m):
		case m.Field == packet.Fragment:
			c = c.and(f.fragment(m.Values))
		default:
			c = c.and(f.scalar(m))
		}
	}
	for _, u := range f.unrefused(r) {
		out = append(out, c.and(u))
	}
	return out
}

func isFull(m ir.Match) bool { return len(ranges.Complement(m.Values, m.Field.Size())) == 0 }

// refusal is a protocol, with the packets of this protocol that a rule excludes by tests of the L4 header.
type refusal struct {
	kind  match.Kind
	tests []ir.Match // tests for the excluded packets, in values without the offset that encodes the kind
}

// refusals returns the refusals of the protocols that a rule allows.
func (f *familyBuilder) refusals(r *ir.Rule, protos []ir.Range) (out []refusal) {
	for kind := match.TCP; kind <= match.ICMPv6; kind++ {
		if !slices.Contains(kind.Families(), f.family) || !ranges.Overlap(protos, kind.Proto()) {
			continue
		}
		var tests []ir.Match
		for _, m := range r.Match {
			if _, ofL4 := headerless[m.Field]; ofL4 {
				tests = append(tests, refusedOf(m, kind)...)
			}
		}
		if tests != nil {
			out = append(out, refusal{kind, tests})
		}
	}
	return out
}

// refusedOf returns the opposite of a test, for packets of a kind. It returns nil if all packets of the kind pass the test.
func refusedOf(m ir.Match, kind match.Kind) []ir.Match {
	opposite := ir.Match{Field: m.Field, Values: ranges.Complement(m.Values, m.Field.Size())}
	tests, possible := match.KindTests(&ir.Rule{Match: []ir.Match{opposite}}, kind)
	switch {
	case !possible:
		return nil
	case len(tests) == 0: // the test fails for all packets of the kind
		opposite.Values = kindComplement(ir.Match{Field: m.Field})
		return []ir.Match{opposite}
	}
	return tests
}

// unrefused returns the conditions on the protocol and its header. Each protocol with excluded packets has a condition of its own. If the excluded
// ports of TCP and UDP are equal, no line needs to test the protocol.
func (f *familyBuilder) unrefused(r *ir.Rule) (out []condition) {
	protos := f.protosOf(r)
	list := f.refusals(r, protos)
	if len(list) > 0 && f.asked == nil && f.samePorts(list, protos) {
		return []condition{f.proto(protos).and(f.without(list[0]))}
	}
	others := protos
	for _, l := range list {
		out = append(out, all(lineTests{proto: kindProto[l.kind]}).and(f.without(l)))
		others = ranges.Common(others, ranges.Complement(l.kind.Proto(), packet.Proto.Size()), packet.Proto.Size())
	}
	switch {
	case len(others) == 0:
	case hasKinds(list, match.TCP, match.UDP):
		out = append(out, f.others(others))
	default:
		out = append(out, f.proto(others))
	}
	return out
}

// protosOf returns the protocols that a rule allows. In IPv6 it adds the extension headers, because ip6tables never regards them as the protocol.
func (f *familyBuilder) protosOf(r *ir.Rule) []ir.Range {
	protos := slices.Clone(match.Values(r, packet.Proto))
	if f.family == packet.FamilyIPv6 {
		for n := range isExtension {
			protos = append(protos, ranges.Of(n)...)
		}
	}
	return ranges.Normalize(protos)
}

// samePorts reports whether a rule excludes the same ports for all protocols with ports that it allows.
func (f *familyBuilder) samePorts(list []refusal, protos []ir.Range) bool {
	have := 0
	for _, proto := range [][]ir.Range{ranges.Of(packet.ProtoTCP), ranges.Of(packet.ProtoUDP)} {
		if ranges.Overlap(protos, proto) {
			have++
		}
	}
	return len(list) == have && !slices.ContainsFunc(list, func(l refusal) bool {
		return !slices.EqualFunc(l.tests, list[0].tests, func(a, b ir.Match) bool {
			return isPortField(a.Field) && a.Field == b.Field && slices.Equal(a.Values, b.Values)
		})
	})
}

func isPortField(f packet.Field) bool { return f == packet.DPort || f == packet.SPort }

// without returns the condition that a packet of a protocol has no header, or that its header is not excluded. A negated match of a set of ports
// holds for packets without ports.
func (f *familyBuilder) without(l refusal) condition {
	c := always()
	for _, m := range l.tests {
		switch {
		case f.asked != nil && m.Field == packet.DPort:
			c = c.and(unless(true, f.askedPorts(m.Values)))
		case isPortField(m.Field):
			c = c.and(matching("-m set ! --match-set " + f.portSet(m.Values) + side(m.Field)))
		case m.Field == packet.Flags:
			c = c.and(f.withoutFlags(m))
		case m.Field == packet.MSS:
			c.not = append(c.not, f.refusedSizes(m)...)
		default:
			c = c.and(f.withoutTypes(l.kind, m))
		}
	}
	return c
}

// side returns the last word of a set's test of a port: src or dst.
func side(f packet.Field) string {
	return map[packet.Field]string{packet.DPort: " dst", packet.SPort: " src"}[f]
}

// noPorts returns the condition that a packet has no ports. This includes TCP and UDP packets without a header, and all other protocols.
func (f *familyBuilder) noPorts() condition {
	return matching("-m set ! --match-set " + f.portSet(kindComplement(ir.Match{Field: packet.DPort})) + side(packet.DPort))
}

func (f *familyBuilder) withoutFlags(m ir.Match) condition {
	c := f.noPorts()
	for _, a := range flagLines(kindComplement(m)) {
		if f.family == packet.FamilyIPv4 {
			c.any = append(c.any, a.and(lineTests{match: []string{notLater}}))
		} else {
			c.any = append(c.any, a.and(hasPorts))
		}
	}
	return c
}

// refusedSizes returns lines that match segments with SYN whose MSS is one of the given values.
func (f *familyBuilder) refusedSizes(m ir.Match) (lines []lineTests) {
	syn := lineTests{proto: kindProto[match.TCP], header: []string{"--tcp-flags SYN SYN"}}
	if f.family == packet.FamilyIPv4 {
		syn.match = []string{notLater}
	} else {
		syn = syn.and(hasPorts)
	}
	for _, l := range mssLines(m) {
		lines = append(lines, syn.and(l))
	}
	return lines
}

// withoutTypes returns the condition that excludes ICMP messages. In IPv6 the excluded messages are exceptions, because no test there recognizes a
// later fragment.
func (f *familyBuilder) withoutTypes(kind match.Kind, m ir.Match) condition {
	refused := f.icmpLines(m.Values)
	if f.family == packet.FamilyIPv6 {
		for i := range refused {
			refused[i].proto = kindProto[kind]
		}
		return condition{any: []lineTests{{}}, not: refused}
	}
	c := matching(isLater)
	const few = 8
	if len(refused) > few {
		for _, a := range f.icmpLines(kindComplement(m)) {
			c.any = append(c.any, a.and(lineTests{match: []string{notLater}}))
		}
		return c
	}
	other := lineTests{match: []string{notLater}}
	for _, a := range refused {
		other.match = append(other.match, a.negation())
	}
	c.any = append(c.any, other)
	return c
}

func hasKinds(list []refusal, of ...match.Kind) bool {
	return !slices.ContainsFunc(of, func(kind match.Kind) bool {
		return !slices.ContainsFunc(list, func(l refusal) bool { return l.kind == kind })
	})
}

// others returns the condition on the protocols without excluded packets, if both TCP and UDP have excluded packets. The test that a packet has no
// ports needs no chains. It also holds for later fragments of TCP and UDP, which are not excluded.
func (f *familyBuilder) others(protos []ir.Range) condition {
	icmp := map[uint32]match.Kind{packet.FamilyIPv4: match.ICMP, packet.FamilyIPv6: match.ICMPv6}[f.family]
	switch {
	case slices.Equal(protos, ranges.Complement(tcpOrUDP, packet.Proto.Size())):
		return f.noPorts()
	case slices.Equal(protos, ranges.Complement(ranges.Normalize(slices.Concat(tcpOrUDP, icmp.Proto())), packet.Proto.Size())):
		return all(lineTests{proto: "! " + kindProto[icmp]}).and(f.noPorts())
	}
	return f.proto(protos)
}

var tcpOrUDP = ranges.Normalize(slices.Concat(ranges.Of(packet.ProtoTCP), ranges.Of(packet.ProtoUDP)))
