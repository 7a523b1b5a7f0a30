package compile

import (
	"slices"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// A branch is one way in which a packet can satisfy a rule, as far as its protocol and fields go, in terms that netfilter
// has tests for: all of it must hold. The branches of a rule exclude each other.
//
// netfilter has no value for "no port": a test of a port fails when there is none, negated or not. So the kinds of
// packets that have a field are told apart first. A packet whose L4 header is cut short is of no kind: the check
// truncated stands for those.
type branch struct {
	families []uint32 // packet.FamilyIPv4, packet.FamilyIPv6 or both
	kind     l4Kind
	tests    []ir.Match // of fields as packet.Field has them, those of the kind without their tag: a port is 0 to 65535
}

// l4Kind is what follows the IP header.
type l4Kind uint8

const (
	anyL4         l4Kind = iota // the rule does not ask
	tcpL4                       // a TCP header
	udpL4                       // a UDP header
	icmpL4                      // an ICMP message, in IPv4
	icmpv6L4                    // an ICMPv6 message, in IPv6
	otherIPv4                   // a protocol that has neither ports nor types here, in IPv4
	otherIPv6                   // the same in IPv6
	laterFragment               // data: the header was in the first fragment
)

// kinds says of each kind which values of the fields it can have, and what is taken off them.
var kinds = [...]struct {
	family   []uint32
	proto    []ir.Range
	ports    ir.Range
	flags    ir.Range
	icmp     ir.Range
	fragment ir.Range
}{
	tcpL4:  {bothFamilies, single(protoTCP), ir.Range{First: 0, Last: packet.PortUDP - 1}, ir.Range{First: 0, Last: packet.FlagsNone - 1}, noICMP, withHeader},
	udpL4:  {bothFamilies, single(protoUDP), ir.Range{First: packet.PortUDP, Last: packet.PortNone - 1}, noFlags, noICMP, withHeader},
	icmpL4: {[]uint32{packet.FamilyIPv4}, single(protoICMP), noPort, noFlags, ir.Range{First: 0, Last: packet.ICMPv6 - 1}, withHeader},
	icmpv6L4: {[]uint32{packet.FamilyIPv6}, single(protoICMPv6), noPort, noFlags,
		ir.Range{First: packet.ICMPv6, Last: packet.ICMPNone - 1}, withHeader},
	otherIPv4:     {[]uint32{packet.FamilyIPv4}, allBut(protoICMP), noPort, noFlags, noICMP, withHeader},
	otherIPv6:     {[]uint32{packet.FamilyIPv6}, allBut(protoICMPv6), noPort, noFlags, noICMP, withHeader},
	laterFragment: {bothFamilies, allProtocols, noPort, noFlags, noICMP, ir.Range{First: packet.FragmentLater, Last: packet.FragmentLater}},
}

var (
	bothFamilies = []uint32{packet.FamilyIPv4, packet.FamilyIPv6}
	allProtocols = []ir.Range{{First: 0, Last: 255}}
	noPort       = ir.Range{First: packet.PortNone, Last: packet.PortNone}
	noFlags      = ir.Range{First: packet.FlagsNone, Last: packet.FlagsNone}
	noICMP       = ir.Range{First: packet.ICMPNone, Last: packet.ICMPNone}
	withHeader   = ir.Range{First: packet.FragmentNone, Last: packet.FragmentFirst}
)

// l4Branches takes a rule apart by kinds, where its tests need that. Families that no packet of a kind has are left out.
func l4Branches(r *ir.Rule) []branch {
	families := ir.Match{Field: packet.Family, Values: valuesOf(r, packet.Family)}
	asks := slices.ContainsFunc(r.Match, func(m ir.Match) bool {
		return m.Field == packet.DPort || m.Field == packet.SPort || m.Field == packet.Flags || m.Field == packet.ICMP
	})
	if !asks {
		b := branch{families: familiesIn(bothFamilies, families)}
		for _, m := range r.Match {
			if m.Field != packet.Family {
				b.tests = append(b.tests, m)
			}
		}
		return []branch{b}
	}
	var out []branch
	for kind := tcpL4; kind <= laterFragment; kind++ {
		tests, possible := kindTests(r, kind)
		if possible {
			out = append(out, branch{kind: kind, families: familiesIn(kinds[kind].family, families), tests: tests})
		}
	}
	return out
}

func familiesIn(families []uint32, allowed ir.Match) (in []uint32) {
	for _, f := range families {
		if allowed.Has(f) {
			in = append(in, f)
		}
	}
	return in
}

// valuesOf are the values of a field that a rule allows.
func valuesOf(r *ir.Rule, f packet.Field) []ir.Range {
	for _, m := range r.Match {
		if m.Field == f {
			return m.Values
		}
	}
	return []ir.Range{{First: 0, Last: f.Size() - 1}}
}

// kindTests are the tests of a rule that are left for the packets of a kind; possible is false when none can satisfy it.
func kindTests(r *ir.Rule, kind l4Kind) (tests []ir.Match, possible bool) {
	k := kinds[kind]
	for _, m := range r.Match {
		var of []ir.Range // the values that this kind has
		base := uint32(0)
		switch m.Field {
		case packet.Family:
			continue
		case packet.DPort, packet.SPort:
			of, base = []ir.Range{k.ports}, k.ports.First
		case packet.Flags:
			of = []ir.Range{k.flags}
		case packet.ICMP:
			of, base = []ir.Range{k.icmp}, k.icmp.First
		case packet.Fragment:
			of = []ir.Range{k.fragment}
		case packet.Proto:
			of = k.proto
		default:
			tests = append(tests, m)
			continue
		}
		left := common(m.Values, of, m.Field.Size())
		if len(left) == 0 {
			return nil, false
		}
		if !slices.Equal(left, of) {
			tests = append(tests, ir.Match{Field: m.Field, Values: shift(left, base)})
		}
	}
	return tests, true
}

// allBut are the protocols without TCP, UDP and one more.
func allBut(icmp uint32) []ir.Range {
	return complement(normalize(slices.Concat(single(protoTCP), single(protoUDP), single(icmp))), packet.Proto.Size())
}

// common are the values in both lists of ranges, which are normalized, of a domain of a size.
func common(a, b []ir.Range, size uint32) []ir.Range {
	return complement(normalize(append(complement(a, size), complement(b, size)...)), size)
}

// shift takes base off all values.
func shift(ranges []ir.Range, base uint32) []ir.Range {
	out := slices.Clone(ranges)
	for i := range out {
		out[i].First -= base
		out[i].Last -= base
	}
	return out
}
