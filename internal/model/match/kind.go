// SPDX-License-Identifier: Apache-2.0

package match

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// A Branch is one of the alternatives into which a rule's protocol and field tests are split, because netfilter has no test for them together. A
// packet matches the branch if all parts of the branch hold. No packet matches two branches of a rule.
//
// netfilter has no value for "no port". If a packet has no port, netfilter's test of a port fails, and so does the negated test. Therefore branches
// first distinguish the kinds of packets that have a field. A packet with a truncated L4 header has no kind. The check truncated handles such
// packets.
type Branch struct {
	Families []uint32 // packet.FamilyIPv4, packet.FamilyIPv6 or both
	Kind     Kind
	Tests    []ir.Match // tests of fields as in packet.Field; for ports and ICMP without the offset that encodes the kind: a port is 0 to 65535
}

// Kind is the kind of data behind the IP header.
type Kind uint8

// The kinds.
const (
	Any           Kind = iota // the rule does not test the kind
	TCP                       // a TCP header
	UDP                       // a UDP header
	ICMP                      // an ICMP message, in IPv4
	ICMPv6                    // an ICMPv6 message, in IPv6
	OtherIPv4                 // IPv4 packets of other protocols, which have neither ports nor ICMP types
	OtherIPv6                 // likewise for IPv6
	LaterFragment             // fragments without an L4 header, which is in the first fragment
)

// kinds has the possible values of the fields for each kind. The first value in the range of ports or ICMP types is the offset that encodes the kind.
// It is subtracted from the values.
var kinds = [...]struct {
	family   []uint32
	proto    []ir.Range
	ports    ir.Range
	flags    ir.Range
	icmp     ir.Range
	mss      ir.Range
	fragment ir.Range
}{
	TCP:  {BothFamilies, ranges.Of(packet.ProtoTCP), ir.Range{First: 0, Last: packet.PortUDP - 1}, ir.Range{First: 0, Last: packet.FlagsNone - 1}, noICMP, ir.Range{First: 0, Last: packet.MSSNone}, WithHeader},
	UDP:  {BothFamilies, ranges.Of(packet.ProtoUDP), ir.Range{First: packet.PortUDP, Last: packet.PortNone - 1}, noFlags, noICMP, noMSS, WithHeader},
	ICMP: {[]uint32{packet.FamilyIPv4}, ranges.Of(packet.ProtoICMP), noPort, noFlags, ir.Range{First: 0, Last: packet.ICMPv6 - 1}, noMSS, WithHeader},
	ICMPv6: {[]uint32{packet.FamilyIPv6}, ranges.Of(packet.ProtoICMPv6), noPort, noFlags,
		ir.Range{First: packet.ICMPv6, Last: packet.ICMPNone - 1}, noMSS, WithHeader},
	OtherIPv4:     {[]uint32{packet.FamilyIPv4}, allBut(packet.ProtoICMP), noPort, noFlags, noICMP, noMSS, WithHeader},
	OtherIPv6:     {[]uint32{packet.FamilyIPv6}, allBut(packet.ProtoICMPv6), noPort, noFlags, noICMP, noMSS, WithHeader},
	LaterFragment: {BothFamilies, AllProtocols, noPort, noFlags, noICMP, noMSS, ir.Range{First: packet.FragmentLater, Last: packet.FragmentLater}},
}

// Families returns the possible address families of the kind.
func (k Kind) Families() []uint32 { return kinds[k].family }

// Proto returns the protocols of the kind.
func (k Kind) Proto() []ir.Range { return kinds[k].proto }

// Fragment returns the values of packet.Fragment of packets of the kind.
func (k Kind) Fragment() ir.Range { return kinds[k].fragment }

// The values that remain if a rule does not test a field, the values for a missing field, and the values of packet.Fragment for packets with an L4
// header.
var (
	BothFamilies = []uint32{packet.FamilyIPv4, packet.FamilyIPv6}
	AllProtocols = []ir.Range{{First: 0, Last: 255}}
	noPort       = ir.Range{First: packet.PortNone, Last: packet.PortNone}
	noFlags      = ir.Range{First: packet.FlagsNone, Last: packet.FlagsNone}
	noMSS        = ir.Range{First: packet.MSSNone, Last: packet.MSSNone}
	noICMP       = ir.Range{First: packet.ICMPNone, Last: packet.ICMPNone}
	WithHeader   = ir.Range{First: packet.FragmentNone, Last: packet.FragmentFirst}
)

// Branches splits a rule into branches by kind. If the rule tests no field of the L4 header, it has one branch of the kind Any. Families that no
// packet of a kind has are left out.
func Branches(r *ir.Rule) []Branch {
	families := ir.Match{Field: packet.Family, Values: Values(r, packet.Family)}
	asks := slices.ContainsFunc(r.Match, func(m ir.Match) bool { return IsHeader(m.Field) })
	if !asks {
		b := Branch{Families: familiesIn(BothFamilies, families)}
		for _, m := range r.Match {
			if m.Field != packet.Family {
				b.Tests = append(b.Tests, m)
			}
		}
		return []Branch{b}
	}
	var out []Branch
	for kind := TCP; kind <= LaterFragment; kind++ {
		tests, possible := KindTests(r, kind)
		if !possible {
			continue
		}
		for _, part := range BySYN(tests) {
			out = append(out, Branch{Kind: kind, Families: familiesIn(kind.Families(), families), Tests: part})
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

// KindTests returns the tests of a rule that packets of a kind do not always pass. possible is false if no packet of the kind can match the rule.
func KindTests(r *ir.Rule, kind Kind) (tests []ir.Match, possible bool) {
	k := kinds[kind]
	for _, m := range r.Match {
		var of []ir.Range // the values of the field that packets of this kind have
		base := uint32(0)
		switch m.Field {
		case packet.Family:
			continue
		case packet.DPort, packet.SPort:
			of, base = []ir.Range{k.ports}, k.ports.First
		case packet.Flags:
			of = []ir.Range{k.flags}
		case packet.MSS:
			of = []ir.Range{k.mss}
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
		left := ranges.Common(m.Values, of, m.Field.Size())
		if len(left) == 0 {
			return nil, false
		}
		if !slices.Equal(left, of) {
			tests = append(tests, ir.Match{Field: m.Field, Values: ranges.Shift(left, base)})
		}
	}
	return tests, true
}

// BySYN splits tests with a test of the MSS into two parts: one for segments with SYN, and one for segments without SYN, which have no MSS. A part
// that matches nothing is left out. Both parts test the flags. So netfilter's tests of the MSS option see only segments that may have the option.
func BySYN(tests []ir.Match) (parts [][]ir.Match) {
	i := slices.IndexFunc(tests, func(m ir.Match) bool { return m.Field == packet.MSS })
	if i < 0 {
		return [][]ir.Match{tests}
	}
	options := ranges.Common(tests[i].Values, []ir.Range{WithSYN}, packet.MSS.Size())
	rest := slices.Delete(slices.Clone(tests), i, i+1)
	add := func(syn bool, more ...ir.Match) {
		of := Also(append(slices.Clone(rest), more...), Flags(func(v uint32) bool { return v&2 != 0 == syn }))
		if _, none := Impossible(ir.Rule{Match: of}); !none {
			parts = append(parts, of)
		}
	}
	switch {
	case slices.Equal(options, []ir.Range{WithSYN}):
		add(true)
	case len(options) > 0:
		add(true, ir.Match{Field: packet.MSS, Values: options})
	}
	if tests[i].Has(packet.MSSNone) {
		add(false)
	}
	return parts
}

// WithSYN is the range of the values of packet.MSS that segments with SYN can have.
var WithSYN = ir.Range{First: 0, Last: packet.MSSMissing}

// allBut returns all protocols except TCP, UDP and the protocol icmp.
func allBut(icmp uint32) []ir.Range {
	return ranges.Complement(ranges.Normalize(slices.Concat(ranges.Of(packet.ProtoTCP), ranges.Of(packet.ProtoUDP), ranges.Of(icmp))), packet.Proto.Size())
}
