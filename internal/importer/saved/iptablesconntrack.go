// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// conntrack parses the options of -m conntrack. The addresses and ports of a connection are those of the packet that started the connection. A packet
// in state NEW is that packet, so the addresses and ports are its own. The direction of other packets is unknown.
func (r *iptablesRuleReader) conntrack(of []Token) {
	original := false
	for _, t := range of {
		if t.Name == "--ctstate" {
			r.state(t.Not, t.Args)
		}
	}
	isNew := !slices.ContainsFunc(r.rule.Alts, func(c Cond) bool {
		return c.DNAT || !c.Field[packet.State].Within(Only(packet.StateNew)) || c.Field[packet.State] == nil
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
			r.originalAddress(t, isNew || original, Cond.From)
		case "--ctorigdst":
			r.originalAddress(t, isNew || original, Cond.To)
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
var tracked = Only(packet.StateNew, packet.StateEstablished, packet.StateRelated)

// direction parses --ctdir, and reports whether it means packets of the side that started the connection.
func (r *iptablesRuleReader) direction(t Token, isNew bool) bool {
	original := t.Args[0] == "ORIGINAL" != t.Not
	if !isNew {
		r.each(func(c Cond) Cond { return c.With(packet.State, tracked) })
		r.unknown("the direction of a connection")
		return original
	}
	if !original {
		r.each(func(c Cond) Cond { return c.With(packet.State, Values{}) })
	}
	return original
}

// trackedProtocol parses --ctproto. An ICMP error that belongs to a connection has the connection's protocol.
func (r *iptablesRuleReader) trackedProtocol(t Token) {
	n, ok := ProtoNumber(t.Args[0])
	if !ok {
		r.unknown("protocol " + t.Args[0])
		return
	}
	v := Only(n)
	if t.Not {
		v = v.Not(packet.Proto)
	} else if len(r.protos) == 0 {
		r.protos = []uint32{n}
	}
	r.each(func(c Cond) Cond {
		c = c.With(packet.Proto, v).With(packet.State, tracked)
		if c.Field[packet.State].Has(packet.StateRelated) {
			c = c.Narrowed("the policy takes an ICMP error for ICMP, and this for what the error is about")
		}
		return c
	})
}

func (r *iptablesRuleReader) originalAddress(t Token, original bool, side func(Cond, AddrTest) Cond) {
	r.originalOnly(t, original)
	r.address(t.Not, t.Args[0], side)
}

func (r *iptablesRuleReader) originalPort(t Token, original bool, f packet.Field) {
	r.originalOnly(t, original)
	if len(r.protos) == 0 {
		r.protos = []uint32{ProtoTCP, ProtoUDP}
	}
	ports(f, ":")(r, t.Not, t.Args)
}

// originalOnly makes a rule one without equivalent for packets whose direction is unknown.
func (r *iptablesRuleReader) originalOnly(t Token, original bool) {
	r.each(func(c Cond) Cond { return c.With(packet.State, tracked) })
	if !original {
		r.rule.Narrow([]Cond{Cond{}.With(packet.State, Only(packet.StateNew)),
			Cond{}.With(packet.State, Only(packet.StateEstablished, packet.StateRelated)).WithUnknown("-m conntrack " + t.Name)})
	}
}
