// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// box is a set of packets that one rule can match. A packet must meet all conditions of the box. Each condition is about one property.
type box struct {
	dst, src       netip.Prefix // not valid: any
	notDst, notSrc []netip.Prefix
	fields         [packet.NumFields][]ranges.Range // nil: any
}

// boxes returns the packets of a flow specification as disjoint boxes. A component of type Port makes two boxes, because it means either port.
func (f Flow) boxes() ([]box, error) {
	b := box{}
	values := map[Type][]ranges.Range{}
	for _, c := range f.Components {
		list, err := c.values(f.IPv6)
		if err != nil {
			return nil, err
		}
		values[c.Type] = list
		switch c.Type {
		case Destination:
			b.dst = c.Prefix
		case Source:
			b.src = c.Prefix
		default:
			if field, ok := fieldOf[c.Type]; ok {
				b.fields[field] = portsOf(c.Type, list)
			}
		}
	}
	if !b.dst.IsValid() && !b.src.IsValid() {
		b.fields[packet.Family] = ranges.Of(familyNumber(f.IPv6))
	}
	if types, codes := values[ICMPType], values[ICMPCode]; types != nil || codes != nil {
		list, err := icmpValues(types, codes, f.IPv6)
		if err != nil {
			return nil, err
		}
		b.fields[packet.ICMP] = list
	}
	either, ok := values[Port]
	if !ok {
		return b.unlessEmpty(), nil
	}
	return b.eitherPort(bothProtocols(either)), nil
}

// around returns a box that contains all packets of a flow specification.
func (f Flow) around() (b box) {
	b.dst = f.DestinationPrefix()
	if c := f.component(Source); c != nil {
		b.src = c.Prefix
	}
	return b
}

// fieldOf are the fields of components that test a single field.
var fieldOf = map[Type]packet.Field{
	Protocol: packet.Proto, DestinationPort: packet.DPort, SourcePort: packet.SPort, TCPFlags: packet.Flags, Length: packet.Length,
	DSCP: packet.DSCP, Fragment: packet.Fragment,
}

func familyNumber(ipv6 bool) uint32 {
	if ipv6 {
		return packet.FamilyIPv6
	}
	return packet.FamilyIPv4
}

// portsOf converts the values of a component to values of fields. Port numbers become those of both TCP and UDP.
func portsOf(t Type, list []ranges.Range) []ranges.Range {
	if t == DestinationPort || t == SourcePort {
		return bothProtocols(list)
	}
	return list
}

// bothProtocols returns ports of both TCP and UDP, as values of packet.DPort.
func bothProtocols(ports []ranges.Range) []ranges.Range {
	list := slices.Clone(ports)
	for _, r := range ports {
		list = append(list, ranges.Span(packet.PortUDP+r.First, packet.PortUDP+r.Last))
	}
	return ranges.Normalize(list)
}

// icmpValues returns the values of packet.ICMP with one of the types and one of the codes; nil means any value.
func icmpValues(types, codes []ranges.Range, ipv6 bool) ([]ranges.Range, error) {
	base := uint32(0)
	if ipv6 {
		base = packet.ICMPv6
	}
	every := []ranges.Range{ranges.Span(0, 255)}
	if types == nil {
		types = every
	}
	if codes == nil {
		codes = every
	}
	list := []ranges.Range{} // not nil, because nil means any
	for _, t := range types {
		for kind := t.First; kind <= t.Last; kind++ {
			for _, c := range codes {
				list = append(list, ranges.Span(base|kind<<8|c.First, base|kind<<8|c.Last))
			}
		}
	}
	list = ranges.Normalize(list)
	if len(list) > 4*maxRanges {
		return nil, untestable("ICMP code: comes to too many pairs of type and code")
	}
	return list, nil
}

// eitherPort splits a box into two disjoint parts: packets whose destination port is one of ports, and packets of which only the source port is one.
func (b box) eitherPort(ports []ranges.Range) []box {
	to, from := b.with(packet.DPort, ports), b.with(packet.SPort, ports)
	from = from.with(packet.DPort, ranges.Complement(ports, packet.PortNone)) // a packet with a source port also has a destination port
	return append(to.unlessEmpty(), from.unlessEmpty()...)
}

// of returns the values of a field in a box.
func (b *box) of(f packet.Field) []ranges.Range {
	if b.fields[f] == nil {
		return []ranges.Range{ranges.Span(0, f.Size()-1)}
	}
	return b.fields[f]
}

// with returns the part of a box with the given values of a field.
func (b box) with(f packet.Field, values []ranges.Range) box {
	b.fields[f] = ranges.Common(b.of(f), values, f.Size())
	return b
}

// unlessEmpty returns a list with the box, or an empty list when the box has no packets.
func (b box) unlessEmpty() []box {
	for _, values := range b.fields {
		if values != nil && len(values) == 0 {
			return nil
		}
	}
	if within(b.dst, b.notDst) || within(b.src, b.notSrc) {
		return nil
	}
	return []box{b}
}

// within reports whether a prefix lies in any of a list of other prefixes.
func within(p netip.Prefix, others []netip.Prefix) bool {
	return p.IsValid() && slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) })
}

// common returns the intersection of two boxes. The box a must not exclude prefixes. The result is empty when the boxes have no packet in common.
func (b box) common(a *box) []box {
	var ok bool
	if b.dst, ok = inner(b.dst, a.dst); !ok {
		return nil
	}
	if b.src, ok = inner(b.src, a.src); !ok {
		return nil
	}
	for f, values := range a.fields {
		if values != nil {
			b = b.with(packet.Field(f), values)
		}
	}
	return b.unlessEmpty()
}

// inner returns the intersection of two prefixes. An invalid prefix contains all addresses.
func inner(a, b netip.Prefix) (netip.Prefix, bool) {
	switch {
	case !a.IsValid():
		return b, true
	case !b.IsValid():
		return a, true
	case a.Bits() < b.Bits():
		return b, a.Overlaps(b)
	}
	return a, a.Overlaps(b)
}

// minus returns a box without the packets of the box a, as disjoint boxes. The box a must not exclude prefixes.
func (b box) minus(a *box) (rest []box) {
	if b.common(a) == nil {
		return []box{b}
	}
	if a.dst.IsValid() {
		outside := b
		outside.notDst = append(slices.Clip(b.notDst), a.dst)
		rest = append(rest, outside.unlessEmpty()...)
		b.dst, _ = inner(b.dst, a.dst)
	}
	if a.src.IsValid() {
		outside := b
		outside.notSrc = append(slices.Clip(b.notSrc), a.src)
		rest = append(rest, outside.unlessEmpty()...)
		b.src, _ = inner(b.src, a.src)
	}
	for f, values := range a.fields {
		if values != nil {
			field := packet.Field(f)
			rest = append(rest, b.with(field, ranges.Complement(values, field.Size())).unlessEmpty()...)
			b = b.with(field, values)
		}
	}
	return rest
}

// coherent makes the conditions of a box consistent. A condition on ports, flags or types excludes protocols without these fields, and fragments
// whose header was in another packet. The box still has the same packets. The result is empty when the box has no packets.
func (b box) coherent(ipv6 bool) []box {
	proto := b.of(packet.Proto)
	asks := false
	only := func(f packet.Field, none uint32, protos func([]ranges.Range) []ranges.Range) {
		if values := b.fields[f]; values != nil && !contains(values, none) {
			asks = true
			proto = ranges.Common(proto, protos(values), packet.Proto.Size())
		}
	}
	carriers := func(values []ranges.Range) (list []ranges.Range) {
		if values[0].First < packet.PortUDP {
			list = ranges.Of(packet.ProtoTCP)
		}
		if values[len(values)-1].Last >= packet.PortUDP {
			list = append(list, ranges.Span(packet.ProtoUDP, packet.ProtoUDP))
		}
		return list
	}
	icmp := uint32(packet.ProtoICMP)
	if ipv6 {
		icmp = packet.ProtoICMPv6
	}
	only(packet.DPort, packet.PortNone, carriers)
	only(packet.SPort, packet.PortNone, carriers)
	only(packet.Flags, packet.FlagsNone, func([]ranges.Range) []ranges.Range { return ranges.Of(packet.ProtoTCP) })
	only(packet.ICMP, packet.ICMPNone, func([]ranges.Range) []ranges.Range { return ranges.Of(icmp) })
	if !asks {
		return []box{b}
	}
	b.fields[packet.Proto] = proto
	if b.fields[packet.Fragment] != nil {
		b = b.with(packet.Fragment, []ranges.Range{ranges.Span(packet.FragmentNone, packet.FragmentFirst)})
	}
	for _, f := range []packet.Field{packet.DPort, packet.SPort} {
		if values := b.fields[f]; values != nil && !contains(values, packet.PortNone) {
			b = b.with(f, portsWith(proto))
		}
	}
	return b.unlessEmpty()
}

// portsWith returns the ports of the given protocols, as values of packet.DPort.
func portsWith(proto []ranges.Range) (list []ranges.Range) {
	if contains(proto, packet.ProtoTCP) {
		list = append(list, ranges.Span(0, packet.PortUDP-1))
	}
	if contains(proto, packet.ProtoUDP) {
		list = append(list, ranges.Span(packet.PortUDP, packet.PortNone-1))
	}
	return ranges.Normalize(list)
}

func contains(values []ranges.Range, v uint32) bool {
	return slices.ContainsFunc(values, func(r ranges.Range) bool { return r.First <= v && v <= r.Last })
}
