package importer

import (
	"slices"

	"github.com/floodwall/floodwall/internal/packet"
)

// conntrack reads the options of -m conntrack. Those of a connection's addresses and ports are of the packet that began
// it: a packet in state NEW is that packet, so they are its own. Of others nobody knows which way they go.
func (r *ruleReader) conntrack(of []token) {
	original := false
	for _, t := range of {
		if t.name == "--ctstate" {
			r.state(t.not, t.args)
		}
	}
	isNew := !slices.ContainsFunc(r.rule.alts, func(c cond) bool {
		return c.dnat || !c.field[packet.State].within(only(packet.StateNew)) || c.field[packet.State] == nil
	})
	for _, t := range of {
		if t.name == "--ctdir" {
			original = r.direction(t, isNew)
		}
	}
	for _, t := range of {
		switch t.name {
		case "--ctstate", "--ctdir":
		case "--ctproto":
			r.trackedProtocol(t)
		case "--ctorigsrc":
			r.originalAddress(t, isNew || original, cond.from)
		case "--ctorigdst":
			r.originalAddress(t, isNew || original, cond.to)
		case "--ctorigsrcport":
			r.originalPort(t, isNew || original, packet.SPort)
		case "--ctorigdstport":
			r.originalPort(t, isNew || original, packet.DPort)
		default:
			r.unknown("-m conntrack " + t.name)
		}
	}
}

// tracked are the states of packets that belong to a connection.
var tracked = only(packet.StateNew, packet.StateEstablished, packet.StateRelated)

// direction reads --ctdir, and reports whether the packets are those of the side that began.
func (r *ruleReader) direction(t token, isNew bool) bool {
	original := t.args[0] == "ORIGINAL" != t.not
	if !isNew {
		r.each(func(c cond) cond { return c.with(packet.State, tracked) })
		r.unknown("the direction of a connection")
		return original
	}
	if !original {
		r.each(func(c cond) cond { return c.with(packet.State, values{}) })
	}
	return original
}

// trackedProtocol reads --ctproto. An ICMP error that belongs to a connection has the connection's protocol.
func (r *ruleReader) trackedProtocol(t token) {
	n, ok := protoNumber(t.args[0])
	if !ok {
		r.unknown("protocol " + t.args[0])
		return
	}
	v := only(n)
	if t.not {
		v = v.not(packet.Proto)
	} else if len(r.protos) == 0 {
		r.protos = []uint32{n}
	}
	r.each(func(c cond) cond {
		c = c.with(packet.Proto, v).with(packet.State, tracked)
		if c.field[packet.State].has(packet.StateRelated) {
			c = c.narrowed("the policy takes an ICMP error for ICMP, and this for what the error is about")
		}
		return c
	})
}

func (r *ruleReader) originalAddress(t token, original bool, side func(cond, addrTest) cond) {
	r.originalOnly(t, original)
	r.address(t.not, t.args[0], side)
}

func (r *ruleReader) originalPort(t token, original bool, f packet.Field) {
	r.originalOnly(t, original)
	if len(r.protos) == 0 {
		r.protos = []uint32{protoTCP, protoUDP}
	}
	ports(f, ":")(r, t.not, t.args)
}

// originalOnly makes a rule one without equal for packets of which nobody knows the direction.
func (r *ruleReader) originalOnly(t token, original bool) {
	r.each(func(c cond) cond { return c.with(packet.State, tracked) })
	if !original {
		r.multiply([]cond{cond{}.with(packet.State, only(packet.StateNew)),
			cond{}.with(packet.State, only(packet.StateEstablished, packet.StateRelated)).withUnknown("-m conntrack " + t.name)})
	}
}
