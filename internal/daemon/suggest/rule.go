// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// match returns the match of a policy rule with the tests of the conjunction. If two tests have a key that takes one value, the first test counts.
func (c conjunction) match() (m policy.Match) {
	for _, t := range slices.Backward(c.tests) {
		t.put(&m)
	}
	if m.Payload != nil {
		slices.Reverse(m.Payload.At)
	}
	if m.DNS != nil && m.Port == nil {
		m.Port = []policy.Port{{Proto: packet.ProtoUDP, First: 53, Last: 53}}
	}
	if m.SPort != nil || m.Port != nil || m.Flags != nil || m.ICMP != nil {
		m.Proto = nil // these keys imply it
	}
	return m
}

// count returns the number of samples that at least one rule matches.
func count(rules []*Signature, samples []Sample) (n int) {
	for i := range samples {
		if slices.ContainsFunc(rules, func(g *Signature) bool { return g.Has(&samples[i]) }) {
			n++
		}
	}
	return n
}

// Has reports whether the rule matches a sample, by ir.Eval.
func (g *Signature) Has(s *Sample) bool { return matches(g.rule, &s.Packet) }

// matches reports whether a rule matches a packet. It makes no difference whether the rule observes or drops.
func matches(rule *ir.Program, p *packet.Packet) bool {
	matched := false
	verdict, _ := rule.Eval(p, ir.World{Observe: func(r ir.Reason) { matched = matched || r.Kind == ir.ReasonRule }})
	return matched || verdict == ir.Drop
}

// shared are the fields in which packets of honest newcomers can equal those of an attack: source and destination, and the packet format that all
// clients of a service have.
var shared = []packet.Field{packet.Family, packet.Proto, packet.DPort, packet.Length, packet.TTL, packet.Flags}

// Vague reports whether the rule tests only addresses, a destination port, a protocol, TCP flags, a length or a TTL. A crowd of newcomers can have
// these in common, for example clients of one provider or of one program.
func (g *Signature) Vague() bool {
	return !slices.ContainsFunc(g.rule.Rules, func(r ir.Rule) bool {
		return r.Names != nil || r.Payload != nil || slices.ContainsFunc(r.Match, func(m ir.Match) bool { return !slices.Contains(shared, m.Field) })
	})
}

// TCP reports whether the rule can match a segment of any open TCP connection.
func (g *Signature) TCP() bool { return g.matchesWhere(mayBeTCP) }

// mayBeTCP reports whether segments of an open connection can pass a test of a header field.
func mayBeTCP(t ir.Match) bool {
	switch t.Field {
	case packet.Proto:
		return t.Has(packet.ProtoTCP)
	case packet.SPort, packet.DPort:
		return t.Values[0].First < packet.PortUDP
	case packet.Flags:
		return ofOpen(t)
	case packet.ICMP:
		return t.Has(packet.ICMPNone)
	case packet.DNS:
		return t.Has(packet.DNSNone)
	}
	return true
}

// Bits of the TCP flags.
const flagSYN, flagACK = 0x02, 0x10

// MatchesSYN reports whether the rule can match a SYN, the first segment of a connection (RFC 9293, 3.5). No test reliably distinguishes the SYNs of
// a flood from SYNs of clients, because forged SYNs can have the length, the options and the TTL of any system.
func (g *Signature) MatchesSYN() bool {
	return g.matchesWhere(func(t ir.Match) bool {
		switch t.Field {
		case packet.Proto:
			return t.Has(packet.ProtoTCP)
		case packet.SPort, packet.DPort:
			return t.Values[0].First < packet.PortUDP
		case packet.Flags:
			return slices.ContainsFunc(flagsOfSYN, t.Has)
		case packet.ICMP:
			return t.Has(packet.ICMPNone)
		case packet.DNS:
			return t.Has(packet.DNSNone)
		}
		return true
	})
}

// flagsOfSYN are the flags of SYNs. Some SYNs have the flags of congestion control (RFC 3168, 6.1.1).
var flagsOfSYN = []uint32{flagSYN, flagSYN | 0x40, flagSYN | 0x80, flagSYN | 0xc0}

// matchesWhere reports whether, in at least one of the compiled rules, passes is true for all tests of header fields.
func (g *Signature) matchesWhere(passes func(ir.Match) bool) bool {
	return slices.ContainsFunc(g.rule.Rules, func(r ir.Rule) bool {
		return !slices.ContainsFunc(r.Match, func(t ir.Match) bool { return !passes(t) })
	})
}

// fewPorts is the largest number of source ports that counts as few. Hardly any client uses one of so few ports, because clients choose a random one
// of thousands (RFC 6056, 3.2).
const fewPorts = 16

// FromFewPorts reports whether the rule tests for few source ports, as rules against reflectors do. Clients that choose a random port hardly ever
// choose one of these.
func (g *Signature) FromFewPorts() bool {
	return !slices.ContainsFunc(g.rule.Rules, func(r ir.Rule) bool {
		return !slices.ContainsFunc(r.Match, func(t ir.Match) bool { return t.Field == packet.SPort && size(t.Values) <= fewPorts })
	})
}

// size returns the number of values in ranges.
func size(of []ir.Range) (n uint32) {
	for _, r := range of {
		n += r.Last - r.First + 1
	}
	return n
}

// ReachesPort reports whether the rule can match a packet to a port. The port is a value of packet.DPort.
func (g *Signature) ReachesPort(port uint32) bool {
	proto := uint32(packet.ProtoTCP)
	if port >= packet.PortUDP {
		proto = packet.ProtoUDP
	}
	return g.matchesWhere(func(t ir.Match) bool {
		switch t.Field {
		case packet.Proto:
			return t.Has(proto)
		case packet.DPort:
			return t.Has(port)
		case packet.SPort:
			return (t.Values[0].First >= packet.PortUDP) == (proto == packet.ProtoUDP)
		case packet.Flags:
			return proto == packet.ProtoTCP || t.Has(packet.FlagsNone)
		case packet.ICMP:
			return t.Has(packet.ICMPNone)
		}
		return true
	})
}

// MatchesEcho reports whether the rule can match an echo request.
func (g *Signature) MatchesEcho() bool {
	const request4, request6 = packet.EchoRequest << 8, packet.ICMPv6 + packet.EchoRequestV6<<8
	return g.matchesWhere(func(t ir.Match) bool {
		switch t.Field {
		case packet.Proto:
			return t.Has(packet.ProtoICMP) || t.Has(packet.ProtoICMPv6)
		case packet.ICMP:
			return t.Has(request4) || t.Has(request6)
		case packet.SPort, packet.DPort:
			return t.Has(packet.PortNone)
		case packet.Flags:
			return t.Has(packet.FlagsNone)
		}
		return true
	})
}

// From reports whether the rule tests for sources that include an address.
func (g *Signature) From(a netip.Addr) bool {
	return slices.ContainsFunc(g.rule.Rules, func(r ir.Rule) bool {
		return slices.ContainsFunc(r.Src, func(m ir.AddrMatch) bool {
			return !m.Not && slices.ContainsFunc(m.Sets, func(i int) bool {
				s := g.rule.Sets[i].Static
				return s != nil && s.Contains(a)
			})
		})
	})
}

// MayMatch reports whether the rule can match a segment of an open TCP connection between two addresses and ports. It compares only addresses, ports
// and flags, because the other fields and the bytes of a connection can change at any moment.
func (g *Signature) MayMatch(from, to netip.AddrPort) bool {
	p := packet.Packet{Kind: packet.IP, Src: from.Addr(), Dst: to.Addr()}
	p.Value[packet.Proto], p.Value[packet.Flags], p.Value[packet.ICMP], p.Value[packet.DNS] = packet.ProtoTCP, flagACK, packet.ICMPNone, packet.DNSNone
	p.Value[packet.SPort], p.Value[packet.DPort] = uint32(from.Port()), uint32(to.Port())
	if from.Addr().Is6() {
		p.Value[packet.Family] = packet.FamilyIPv6
	}
	return matches(g.header, &p)
}

// headerOf returns a rule without tests of fields that differ between segments of one TCP connection. It also removes tests of flags that some
// segments of an open connection pass.
func headerOf(rule *ir.Program) *ir.Program {
	program := *rule
	program.Rules = slices.Clone(program.Rules)
	for i := range program.Rules {
		r := &program.Rules[i]
		r.Names, r.Payload = nil, nil
		r.Match = slices.DeleteFunc(slices.Clone(r.Match), func(t ir.Match) bool {
			switch t.Field {
			case packet.Family, packet.Proto, packet.SPort, packet.DPort:
				return false
			case packet.Flags:
				return ofOpen(t)
			}
			return t.Field != packet.ICMP && t.Field != packet.DNS
		})
	}
	return &program
}

// ofOpen reports whether a test passes for any combination of flags of an open connection's segments: ACK without SYN.
func ofOpen(t ir.Match) bool {
	for flags := range uint32(packet.FlagsNone) {
		if flags&flagACK != 0 && flags&flagSYN == 0 && t.Has(flags) {
			return true
		}
	}
	return false
}
