// SPDX-License-Identifier: Apache-2.0

package match

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Overlap reports whether any packet can match both rules. If it cannot tell, it returns true.
func Overlap(sets []ir.Set, a, b *ir.Rule) bool {
	for _, m := range a.Match {
		i := slices.IndexFunc(b.Match, func(o ir.Match) bool { return o.Field == m.Field })
		if i >= 0 && !ranges.Overlap(m.Values, b.Match[i].Values) {
			return false
		}
	}
	return ranges.Overlap(Protocols(a), Protocols(b)) && ranges.Overlap(fragments(a), fragments(b)) && familiesOverlap(sets, a, b) &&
		addrsOverlap(sets, a.Src, b.Src) && addrsOverlap(sets, a.Dst, b.Dst)
}

// familiesOverlap reports whether both rules can match packets of the same family. One rule may restrict the family by
// its source addresses, and the other by its destination addresses.
func familiesOverlap(sets []ir.Set, a, b *ir.Rule) bool {
	return slices.ContainsFunc(BothFamilies, func(family uint32) bool {
		return allowsFamily(sets, a, family) && allowsFamily(sets, b, family)
	})
}

// allowsFamily reports whether a rule's tests of the family and of addresses allow packets of a family.
func allowsFamily(sets []ir.Set, r *ir.Rule, family uint32) bool {
	other := func(m ir.Match) bool { return m.Field == packet.Family && !m.Has(family) }
	without := func(m ir.AddrMatch) bool {
		return !m.Not && !slices.ContainsFunc(m.Sets, func(s int) bool { return hasFamily(&sets[s], family) })
	}
	return !slices.ContainsFunc(r.Match, other) && !slices.ContainsFunc(r.Src, without) && !slices.ContainsFunc(r.Dst, without)
}

// hasFamily reports whether a set can have addresses of a family.
func hasFamily(s *ir.Set, family uint32) bool {
	switch {
	case s.Fixed() == nil:
		return true
	case family == packet.FamilyIPv4:
		return len(s.Static.V4()) > 0
	}
	return s.Static.Size() > len(s.Static.V4())
}

// Protocols returns the IP protocols of the packets that a rule can match. It considers all fields that restrict the protocol, such as ports.
func Protocols(r *ir.Rule) []ir.Range {
	left := []ir.Range{{First: 0, Last: packet.Proto.Size() - 1}}
	for _, m := range r.Match {
		if of := protocolsOf(m); of != nil {
			left = Also([]ir.Match{{Field: packet.Proto, Values: left}}, ir.Match{Field: packet.Proto, Values: of})[0].Values
		}
	}
	return left
}

// protocolsOf returns the IP protocols to which a test restricts packets. It returns nil if the test does not restrict the protocol.
func protocolsOf(m ir.Match) (of []ir.Range) {
	has := func(first, last uint32) bool { return ranges.Overlap(m.Values, []ir.Range{{First: first, Last: last}}) }
	add := func(proto uint32, is bool) {
		if is {
			of = append(of, ranges.Of(proto)...)
		}
	}
	switch m.Field {
	case packet.Proto:
		return m.Values
	case packet.DPort, packet.SPort:
		if !m.Has(packet.PortNone) {
			add(packet.ProtoTCP, has(0, packet.PortUDP-1))
			add(packet.ProtoUDP, has(packet.PortUDP, packet.PortNone-1))
		}
	case packet.Flags:
		add(packet.ProtoTCP, !m.Has(packet.FlagsNone))
	case packet.MSS:
		add(packet.ProtoTCP, !m.Has(packet.MSSNone))
	case packet.ICMP:
		if !m.Has(packet.ICMPNone) {
			add(packet.ProtoICMP, has(0, packet.ICMPv6-1))
			add(packet.ProtoICMPv6, has(packet.ICMPv6, packet.ICMPNone-1))
		}
	}
	return ranges.Normalize(of)
}

// fragments returns the values of packet.Fragment that a rule can match. A later fragment has no ports, flags or ICMP types. It cannot open a
// connection either, because conntrack reassembles fragments first.
func fragments(r *ir.Rule) []ir.Range {
	header := func(m ir.Match) bool { return IsHeader(m.Field) && !m.Has(m.Field.Size()-1) } // the last value of a field means: the field is missing
	if r.Connections != nil || slices.ContainsFunc(r.Match, header) {
		return ranges.Common(Values(r, packet.Fragment), []ir.Range{WithHeader}, packet.Fragment.Size())
	}
	return Values(r, packet.Fragment)
}

// addrsOverlap reports whether one address may satisfy both lists of conditions. It may return true by mistake, but never false.
func addrsOverlap(sets []ir.Set, a, b []ir.AddrMatch) bool {
	for _, m := range a {
		for _, o := range b {
			if !m.Not && !o.Not && !setsOverlap(sets, m.Sets, o.Sets) {
				return false
			}
		}
	}
	return true
}

func setsOverlap(sets []ir.Set, a, b []int) bool {
	for _, i := range a {
		for _, j := range b {
			if i == j || mayOverlap(&sets[i], &sets[j]) {
				return true
			}
		}
	}
	return false
}

// mayOverlap reports whether two sets may have an address in common. It compares the contents only if neither set can change and one of them is
// small. Otherwise it returns true.
func mayOverlap(a, b *ir.Set) bool {
	const quick = 64
	if a.Fixed() == nil || b.Fixed() == nil || min(a.Static.Size(), b.Static.Size()) > quick {
		return true
	}
	return a.Static.Overlaps(b.Static)
}
