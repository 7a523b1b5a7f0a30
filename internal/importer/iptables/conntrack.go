package iptables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// conntrack reads the options of -m conntrack. Those of a connection's addresses and ports are of the packet that began
// it: a packet in state NEW is that packet, so they are its own. Of others nobody knows which way they go.
func (r *ruleReader) conntrack(of []saved.Token) {
	original := false
	for _, t := range of {
		if t.Name == "--ctstate" {
			r.state(t.Not, t.Args)
		}
	}
	isNew := !slices.ContainsFunc(r.rule.Alts, func(c saved.Cond) bool {
		return c.DNAT || !c.Field[packet.State].Within(saved.Only(packet.StateNew)) || c.Field[packet.State] == nil
	})
	for _, t := range of {
		if t.Name == "--ctdir" {
			original = r.direction(t, isNew)
		}
	}
	for _, t := range of {
		switch t.Name {
		case "--ctstate", "--ctdir":
		case "--ctproto":
			r.trackedProtocol(t)
		case "--ctorigsrc":
			r.originalAddress(t, isNew || original, saved.Cond.From)
		case "--ctorigdst":
			r.originalAddress(t, isNew || original, saved.Cond.To)
		case "--ctorigsrcport":
			r.originalPort(t, isNew || original, packet.SPort)
		case "--ctorigdstport":
			r.originalPort(t, isNew || original, packet.DPort)
		default:
			r.unknown("-m conntrack " + t.Name)
		}
	}
}

// tracked are the states of packets that belong to a connection.
var tracked = saved.Only(packet.StateNew, packet.StateEstablished, packet.StateRelated)

// direction reads --ctdir, and reports whether the packets are those of the side that began.
func (r *ruleReader) direction(t saved.Token, isNew bool) bool {
	original := t.Args[0] == "ORIGINAL" != t.Not
	if !isNew {
		r.each(func(c saved.Cond) saved.Cond { return c.With(packet.State, tracked) })
		r.unknown("the direction of a connection")
		return original
	}
	if !original {
		r.each(func(c saved.Cond) saved.Cond { return c.With(packet.State, saved.Values{}) })
	}
	return original
}

// trackedProtocol reads --ctproto. An ICMP error that belongs to a connection has the connection's protocol.
func (r *ruleReader) trackedProtocol(t saved.Token) {
	n, ok := saved.ProtoNumber(t.Args[0])
	if !ok {
		r.unknown("protocol " + t.Args[0])
		return
	}
	v := saved.Only(n)
	if t.Not {
		v = v.Not(packet.Proto)
	} else if len(r.protos) == 0 {
		r.protos = []uint32{n}
	}
	r.each(func(c saved.Cond) saved.Cond {
		c = c.With(packet.Proto, v).With(packet.State, tracked)
		if c.Field[packet.State].Has(packet.StateRelated) {
			c = c.Narrowed("the policy takes an ICMP error for ICMP, and this for what the error is about")
		}
		return c
	})
}

func (r *ruleReader) originalAddress(t saved.Token, original bool, side func(saved.Cond, saved.AddrTest) saved.Cond) {
	r.originalOnly(t, original)
	r.address(t.Not, t.Args[0], side)
}

func (r *ruleReader) originalPort(t saved.Token, original bool, f packet.Field) {
	r.originalOnly(t, original)
	if len(r.protos) == 0 {
		r.protos = []uint32{saved.ProtoTCP, saved.ProtoUDP}
	}
	ports(f, ":")(r, t.Not, t.Args)
}

// originalOnly makes a rule one without equal for packets of which nobody knows the direction.
func (r *ruleReader) originalOnly(t saved.Token, original bool) {
	r.each(func(c saved.Cond) saved.Cond { return c.With(packet.State, tracked) })
	if !original {
		r.rule.Narrow([]saved.Cond{saved.Cond{}.With(packet.State, saved.Only(packet.StateNew)),
			saved.Cond{}.With(packet.State, saved.Only(packet.StateEstablished, packet.StateRelated)).WithUnknown("-m conntrack " + t.Name)})
	}
}
