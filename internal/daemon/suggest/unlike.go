// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// ofClients reports whether all tests of a rule are for properties that clients may have: the format of packets, SYNs, or segments of their
// connections.
func (g *Signature) ofClients() bool {
	return g.Vague() || g.MatchesSYN() || g.TCP() && !g.FromFewPorts()
}

// unlike returns why legitimate packets cannot show the harm of a rule: none of them has the rule's destination, its service or its protocol. It
// returns "" when some packets have these, or when there are no legitimate packets.
func (g *Signature) unlike(good []Sample) string {
	if len(good) == 0 {
		return ""
	}
	has := func(is func(*Sample) bool) bool {
		return slices.ContainsFunc(good, func(s Sample) bool { return is(&s) })
	}
	r := &g.rule.Rules[0]
	for _, m := range r.Dst {
		to := func(s *Sample) bool {
			return slices.ContainsFunc(m.Sets, func(i int) bool { set := g.rule.Sets[i].Static; return set != nil && set.Contains(s.Dst) })
		}
		if !m.Not && !has(to) {
			return "to its destination"
		}
	}
	for _, m := range r.Match {
		if m.Field == packet.DPort && !has(func(s *Sample) bool { return m.Has(s.Value[packet.DPort]) }) {
			return "to " + valuesText(packet.DPort, m.Values)
		}
	}
	if proto, ok := protocolOf(r); ok && !has(func(s *Sample) bool { return s.Value[packet.Proto] == proto }) {
		return fmt.Sprintf("of %s", ValueText(packet.Proto, proto))
	}
	return ""
}

// protocolOf returns the protocol that the tests of a rule imply.
func protocolOf(r *ir.Rule) (proto uint32, ok bool) {
	for _, m := range r.Match {
		first := m.Values[0].First
		switch {
		case m.Field == packet.Proto && m.Values[0].Last == first:
			return first, true
		case m.Field == packet.Flags && first != packet.FlagsNone:
			return packet.ProtoTCP, true
		case (m.Field == packet.SPort || m.Field == packet.DPort) && first < packet.PortUDP:
			return packet.ProtoTCP, true
		case (m.Field == packet.SPort || m.Field == packet.DPort) && first < packet.PortNone:
			return packet.ProtoUDP, true
		case m.Field == packet.ICMP && first < packet.ICMPv6:
			return packet.ProtoICMP, true
		case m.Field == packet.ICMP && first < packet.ICMPNone:
			return packet.ProtoICMPv6, true
		}
	}
	return 0, false
}
