package importer

import (
	"slices"

	"github.com/floodwall/floodwall/internal/packet"
)

// possible brings c into the form in which equal conds are equal, for packets of one family: protocols that ports,
// flags and messages need are made explicit, and values that cannot occur left out. It reports whether any packet can
// meet c.
func (c cond) possible(f family) (cond, bool) {
	number := uint32(packet.FamilyIPv4)
	if f == ipv6 {
		number = packet.FamilyIPv6
	}
	if !c.field[packet.Family].has(number) {
		return c, false
	}
	c.field[packet.Family] = only(number)
	var okSrc, okDst bool
	c.src, okSrc = c.src.of(f)
	c.dst, okDst = c.dst.of(f)
	if !okSrc || !okDst {
		return c, false
	}
	c = c.protocols(f).anyHeader().reassembled()
	if v := c.field[packet.Fragment]; v != nil && v.within(only(packet.FragmentLater)) && c.needsHeader() {
		return c, false
	}
	for k, v := range c.field {
		if v != nil && len(v) == 0 {
			return c, false
		}
		if v.full(packet.Field(k)) {
			c.field[k] = nil
		}
	}
	return c, true
}

// anyHeader says of packets that can have any ports, flags or messages of their protocols that they have these protocols,
// and are no later fragments; and of those that have none of what their protocol has, that they are later fragments.
func (c cond) anyHeader() cond {
	for _, d := range dependents {
		v, proto := c.field[d.field], c.field[packet.Proto]
		switch {
		case v == nil:
		case d.whole(v):
			c.field[d.field] = nil
			c = c.with(packet.Proto, d.needs(v)).with(packet.Fragment, only(packet.FragmentNone, packet.FragmentFirst))
		case slices.Equal(v, only(d.none)) && proto != nil && proto.within(d.protos()):
			c.field[d.field] = nil
			c = c.with(packet.Fragment, only(packet.FragmentLater))
		}
	}
	return c
}

// whole reports whether v is all that packets of some protocols can have, and nothing else.
func (d dependent) whole(v values) bool {
	if v.has(d.none) {
		return false
	}
	for _, o := range d.of {
		if part := v.and(o.values); len(part) > 0 && !slices.Equal(part, o.values) {
			return false
		}
	}
	return true
}

// protos are the protocols whose packets have the field.
func (d dependent) protos() values {
	var list []uint32
	for _, o := range d.of {
		list = append(list, o.proto)
	}
	return only(list...)
}

// reassembled makes the state and the kind of fragment agree: what tracks packets puts their fragments together before
// (kernel nf_defrag_ipv4.c, nf_defrag_ipv6_hooks.c).
func (c cond) reassembled() cond {
	state, fragment := c.field[packet.State], c.field[packet.Fragment]
	switch {
	case state == nil || fragment == nil:
	case !state.has(packet.StateUntracked) && fragment.has(packet.FragmentNone):
		c.field[packet.Fragment] = nil
	case !fragment.has(packet.FragmentNone):
		c.field[packet.State] = state.and(only(packet.StateUntracked))
	}
	return c
}

// manyMessages reports whether c asks for so many ICMP messages that a rule names the others instead. Such a rule is of
// one family.
func (c *cond) manyMessages() bool {
	v := c.field[packet.ICMP]
	return v != nil && !v.has(packet.ICMPNone) && v.count() > 64*256
}

// protocols makes the protocol and what depends on it agree.
func (c cond) protocols(f family) cond {
	messages := values{{0, packet.ICMPv6 - 1}, {packet.ICMPNone, packet.ICMPNone}}
	if f == ipv6 {
		messages = values{{packet.ICMPv6, packet.ICMPNone}}
	}
	if c.field[packet.ICMP] != nil {
		c.field[packet.ICMP] = c.field[packet.ICMP].and(messages)
	}
	proto := c.field[packet.Proto]
	for _, d := range dependents {
		proto = proto.and(d.needs(c.field[d.field]))
	}
	c.field[packet.Proto] = proto
	if proto == nil {
		return c
	}
	for _, d := range dependents {
		if c.field[d.field] != nil {
			c.field[d.field] = d.left(c.field[d.field], proto)
		}
	}
	return c
}

// dependent is a field that only packets of certain protocols have.
type dependent struct {
	field packet.Field
	of    []struct {
		proto  uint32
		values values
	}
	none uint32 // the value of all others
}

var dependents = []dependent{
	portsOf(packet.DPort), portsOf(packet.SPort),
	{field: packet.Flags, none: packet.FlagsNone, of: []struct {
		proto  uint32
		values values
	}{{protoTCP, values{{0, packet.FlagsNone - 1}}}}},
	{field: packet.ICMP, none: packet.ICMPNone, of: []struct {
		proto  uint32
		values values
	}{{protoICMP, values{{0, packet.ICMPv6 - 1}}}, {protoICMPv6, values{{packet.ICMPv6, packet.ICMPNone - 1}}}}},
}

func portsOf(f packet.Field) dependent {
	return dependent{field: f, none: packet.PortNone, of: []struct {
		proto  uint32
		values values
	}{{protoTCP, tcpPorts}, {protoUDP, udpPorts}}}
}

// needs is the protocols that packets with one of the values v have; nil when it can be any.
func (d dependent) needs(v values) values {
	if v.has(d.none) {
		return nil
	}
	protos := values{}
	for _, o := range d.of {
		if len(v.and(o.values)) > 0 {
			protos = append(protos, span{o.proto, o.proto})
		}
	}
	return normalize(protos)
}

// left is what packets of the protocols can have of the values v; nil when that is all they can have.
func (d dependent) left(v, protos values) values {
	can := only(d.none)
	for _, o := range d.of {
		if protos.has(o.proto) {
			can = can.or(o.values)
		}
	}
	if v = v.and(can); slices.Equal(v, can) {
		return nil
	}
	return v
}

// needsHeader reports whether c asks for something that only packets with an L4 header have.
func (c cond) needsHeader() bool {
	return slices.ContainsFunc(dependents, func(d dependent) bool { return !c.field[d.field].has(d.none) })
}
