package flowspec

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// box is a set of packets that one rule can match: all conditions must hold, and each is of one property of the packet.
type box struct {
	dst, src       netip.Prefix // not valid: any
	notDst, notSrc []netip.Prefix
	fields         [packet.NumFields][]ranges.Range // nil: any
}

// boxes are the packets of a flow specification, in boxes of which no two have a packet in common. The type Port, which asks
// for either port, makes two.
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

// around is a box that has at least the packets of a flow specification.
func (f Flow) around() (b box) {
	b.dst = f.DestinationPrefix()
	if c := f.component(Source); c != nil {
		b.src = c.Prefix
	}
	return b
}

// fieldOf are the fields that components test alone.
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

// portsOf makes values of fields from those of a component.
func portsOf(t Type, list []ranges.Range) []ranges.Range {
	if t == DestinationPort || t == SourcePort {
		return bothProtocols(list)
	}
	return list
}

// bothProtocols are ports of TCP and of UDP, as packet.DPort has them.
func bothProtocols(ports []ranges.Range) []ranges.Range {
	list := slices.Clone(ports)
	for _, r := range ports {
		list = append(list, ranges.Span(packet.PortUDP+r.First, packet.PortUDP+r.Last))
	}
	return ranges.Normalize(list)
}

// icmpValues are the values of packet.ICMP that have one of the types and one of the codes; nil is any.
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
	list := []ranges.Range{} // not nil, which is any
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

// eitherPort splits a box into the packets whose destination port is one of ports, and those of which only the source port is.
func (b box) eitherPort(ports []ranges.Range) []box {
	to, from := b.with(packet.DPort, ports), b.with(packet.SPort, ports)
	from = from.with(packet.DPort, ranges.Complement(ports, packet.PortNone)) // who has a source port has a destination port
	return append(to.unlessEmpty(), from.unlessEmpty()...)
}

// of are the values that a box has of a field.
func (b *box) of(f packet.Field) []ranges.Range {
	if b.fields[f] == nil {
		return []ranges.Range{ranges.Span(0, f.Size()-1)}
	}
	return b.fields[f]
}

// with is the part of a box whose packets have one of some values.
func (b box) with(f packet.Field, values []ranges.Range) box {
	b.fields[f] = ranges.Common(b.of(f), values, f.Size())
	return b
}

// unlessEmpty is a box alone, or none when no packet is in it.
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

// within reports whether a prefix is inside one of others.
func within(p netip.Prefix, others []netip.Prefix) bool {
	return p.IsValid() && slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) })
}

// common is the box of the packets that are in both of two boxes, of which the second excludes no prefixes. There is none when no packet is.
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

// inner is the prefix of the addresses that two prefixes have in common; one that is not valid has all.
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

// minus are the packets of a box that are not in another, which excludes no prefixes, in boxes that have none in common.
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

// coherent is a box whose conditions agree: a condition on ports, flags or types leaves out protocols that have none, and fragments
// whose header was in another packet. The packets of the box stay the same. There is none when nothing is left.
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

// portsWith are the ports of protocols.
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
