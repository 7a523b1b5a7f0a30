// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Possible converts c to a normal form for packets of one family, in which equivalent conditions are equal. It makes protocols explicit that ports,
// flags and messages require, and removes values that cannot occur. It returns false if no packet can meet c.
func (c Cond) Possible(f Family) (Cond, bool) {
	number := uint32(packet.FamilyIPv4)
	if f == IPv6 {
		number = packet.FamilyIPv6
	}
	if !c.Field[packet.Family].Has(number) {
		return c, false
	}
	c.Field[packet.Family] = Only(number)
	var okSrc, okDst bool
	c.Src, okSrc = c.Src.of(f)
	c.Dst, okDst = c.Dst.of(f)
	if !okSrc || !okDst {
		return c, false
	}
	if c.asksBytes() && c.Field[packet.Proto] != nil {
		c.Field[packet.Proto] = c.Field[packet.Proto].And(withBytes)
	}
	c = c.protocols(f).segments().protocols(f).anyHeader(f).reassembled()
	if v := c.Field[packet.Fragment]; v != nil && v.Within(Only(packet.FragmentLater)) && c.needsHeader() {
		return c, false
	}
	for k, v := range c.Field {
		if v != nil && len(v) == 0 {
			return c, false
		}
		if v.Full(packet.Field(k)) {
			c.Field[k] = nil
		}
	}
	return c, true
}

// anyHeader simplifies tests of ports, flags or messages of packets of one family. A test that allows all values of some protocols becomes a test for
// these protocols and for packets other than later fragments. A test for packets without the field, of protocols that have it, becomes a test for
// later fragments.
func (c Cond) anyHeader(f Family) Cond {
	for _, d := range Dependents {
		d = d.in(f)
		v, proto := c.Field[d.Field], c.Field[packet.Proto]
		switch {
		case v == nil:
		case d.whole(v):
			c.Field[d.Field] = nil
			c = c.With(packet.Proto, d.Needs(v)).With(packet.Fragment, Only(packet.FragmentNone, packet.FragmentFirst))
		case slices.Equal(v, Only(d.none)) && proto != nil && proto.Within(d.protos()):
			c.Field[d.Field] = nil
			c = c.With(packet.Fragment, Only(packet.FragmentLater))
		}
	}
	return c
}

// whole reports whether v has exactly the values that packets of some protocols can have.
func (d dependent) whole(v Values) bool {
	if v.Has(d.none) {
		return false
	}
	for _, o := range d.of {
		if part := v.And(o.values); len(part) > 0 && !slices.Equal(part, o.values) {
			return false
		}
	}
	return true
}

// protos returns the protocols whose packets have the field.
func (d dependent) protos() Values {
	var list []uint32
	for _, o := range d.of {
		list = append(list, o.proto)
	}
	return Only(list...)
}

// reassembled makes the state and the kind of fragment consistent: connection tracking reassembles fragments first (kernel nf_defrag_ipv4.c,
// nf_defrag_ipv6_hooks.c).
func (c Cond) reassembled() Cond {
	state, fragment := c.Field[packet.State], c.Field[packet.Fragment]
	switch {
	case state == nil || fragment == nil:
	case !state.Has(packet.StateUntracked) && fragment.Has(packet.FragmentNone):
		c.Field[packet.Fragment] = nil
	case !fragment.Has(packet.FragmentNone):
		c.Field[packet.State] = state.And(Only(packet.StateUntracked))
	}
	return c
}

// ManyMessages reports whether c has so many ICMP messages that a rule names the missing messages instead. Such a rule is for one family.
func (c *Cond) ManyMessages() bool {
	v := c.Field[packet.ICMP]
	return v != nil && !v.Has(packet.ICMPNone) && v.Count() > 64*256
}

// protocols makes the protocol and the fields that depend on it consistent, for packets of one family.
func (c Cond) protocols(f Family) Cond {
	proto := c.Field[packet.Proto]
	for _, d := range Dependents {
		d = d.in(f)
		if v := c.Field[d.Field]; v != nil {
			c.Field[d.Field] = d.left(v, nil)
			proto = proto.And(d.Needs(c.Field[d.Field]))
		}
	}
	c.Field[packet.Proto] = proto
	if proto == nil {
		return c
	}
	for _, d := range Dependents {
		if v := c.Field[d.Field]; v != nil {
			c.Field[d.Field] = d.in(f).left(v, proto)
		}
	}
	return c
}

// MaxMSS is the largest value of an MSS option.
const MaxMSS = math.MaxUint16

// withSYN are the flag bytes with SYN. withoutSYN are the flag bytes of other segments, and the value of packets that are not segments.
var (
	withSYN    = FlagsWhere(func(f uint32) bool { return f&TCPFlag["syn"] != 0 })
	withoutSYN = withSYN.Not(packet.Flags)
)

// AsksMSS reports whether only segments with SYN can meet c because of its test of the MSS.
func (c *Cond) AsksMSS() bool { return !c.Field[packet.MSS].Has(packet.MSSNone) }

// segments makes the MSS consistent with the protocol and the flags. Only for segments with SYN, the MSS has a value or the value "no option".
func (c Cond) segments() Cond {
	v := c.Field[packet.MSS]
	if v == nil {
		return c
	}
	flags, proto := c.Field[packet.Flags], c.Field[packet.Proto]
	sizes := Values{{First: 0, Last: packet.MSSMissing}}
	if !proto.Has(ProtoTCP) || flags.Within(withoutSYN) {
		v = v.And(Only(packet.MSSNone))
	}
	if flags.Within(withSYN) {
		v = v.And(sizes)
	}
	if len(v.And(sizes)) == 0 && len(v) > 0 {
		flags, v = flags.And(withoutSYN), nil
	} else if slices.Equal(v, sizes) {
		flags, v = flags.And(withSYN), nil
	}
	c.Field[packet.MSS], c.Field[packet.Flags] = v, flags
	if v != nil && !v.Has(packet.MSSNone) || flags != nil && !flags.Has(packet.FlagsNone) {
		c.Field[packet.Proto] = proto.And(Only(ProtoTCP))
	}
	return c
}

// dependent is a field that only packets of certain protocols have.
type dependent struct {
	Field packet.Field
	of    []carrier
	none  uint32 // the value of the field for packets of all other protocols
}

// carrier is a protocol whose packets have a field, in certain families, and the values that the field then can have.
type carrier struct {
	proto    uint32
	values   Values
	families Family
}

// Dependents are the fields that only packets of certain protocols have.
var Dependents = []dependent{
	{packet.DPort, withPorts, packet.PortNone},
	{packet.SPort, withPorts, packet.PortNone},
	{packet.Flags, []carrier{{ProtoTCP, Values{{First: 0, Last: packet.FlagsNone - 1}}, IPv4 | IPv6}}, packet.FlagsNone},
	{packet.ICMP, []carrier{
		{ProtoICMP, Values{{First: 0, Last: packet.ICMPv6 - 1}}, IPv4}, {ProtoICMPv6, Values{{First: packet.ICMPv6, Last: packet.ICMPNone - 1}}, IPv6},
	}, packet.ICMPNone},
}

var withPorts = []carrier{{ProtoTCP, TCPPorts, IPv4 | IPv6}, {ProtoUDP, UDPPorts, IPv4 | IPv6}}

// in returns the field as packets of one family have it. In IPv6 the protocol of ICMP has no messages, and in IPv4 that of ICMPv6 has none.
func (d dependent) in(f Family) dependent {
	d.of = slices.DeleteFunc(slices.Clone(d.of), func(o carrier) bool { return o.families&f == 0 })
	return d
}

// Needs returns the protocols of packets that can have one of the values v. It returns nil when any protocol is possible.
func (d dependent) Needs(v Values) Values {
	if v.Has(d.none) {
		return nil
	}
	protos := Values{}
	for _, o := range d.of {
		if len(v.And(o.values)) > 0 {
			protos = append(protos, Span{First: o.proto, Last: o.proto})
		}
	}
	return Normalize(protos)
}

// left returns the values in v that packets of the protocols can have. It returns nil when these are all values that such packets can have. Without
// protocols, it considers packets of any protocol.
func (d dependent) left(v, protos Values) Values {
	can := Only(d.none)
	for _, o := range d.of {
		if protos.Has(o.proto) {
			can = can.Or(o.values)
		}
	}
	if v = v.And(can); slices.Equal(v, can) {
		return nil
	}
	return v
}

// needsHeader reports whether c tests a field that only packets with an L4 header have.
func (c Cond) needsHeader() bool {
	return c.AsksMSS() || c.asksBytes() || slices.ContainsFunc(Dependents, func(d dependent) bool { return !c.Field[d.Field].Has(d.none) })
}
