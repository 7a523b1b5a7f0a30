// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// terms returns the tests of the protocol, the header and the fragment for one family. If p has a direction, the destination port is read from
// conntrack. Such a line can be for one protocol only.
func (l l4Line) terms(family uint32, p chainInput) (terms []term) {
	prefix := protocolText(l.proto[0].First)
	if len(l.header) == 0 || l.proto[0].First != l.proto[len(l.proto)-1].Last {
		prefix = "th"
		if !slices.Equal(l.proto, match.AllProtocols) && !p.knowsProto(l.proto) {
			terms = append(terms, l.protoTerm(family, p))
		}
	}
	var asked []term // this test comes last; before `udp sport`, nft would list it without its protocol, and could not read that listing
	for _, m := range l.header {
		if m.Field == packet.DPort && p.direction != "" {
			asked = append(asked, askedTerm(prefix, p.direction, m.Values))
			continue
		}
		terms = append(terms, headerTerm(m, prefix))
	}
	terms = append(terms, asked...)
	if l.fragment != nil {
		terms = append(terms, fragmentTerm(l.fragment, family))
	}
	return terms
}

// nextHeader is the key of the protocol in the fragment header of an IPv6 packet. It is needed for later fragments whose protocol is one of
// extensionHeaders. For these fragments every test of `meta l4proto` fails, even a negated one, because the kernel skips these headers and finds no
// header behind them (net/ipv6/exthdrs_core.c, ipv6_find_hdr).
const nextHeader = "frag frag-off != 0 frag nexthdr"

var extensionHeaders = []ir.Range{{First: 0}, {First: 43, Last: 44}, {First: 51, Last: 51}, {First: 60, Last: 60}}

func (l l4Line) protoTerm(family uint32, p chainInput) term {
	test := func(values []ir.Range) string { return valuesText(values, packet.Proto.Size(), protocolText) }
	t := way("meta l4proto " + test(l.proto))
	fragment := l.fragment
	if fragment == nil {
		fragment = p.fragments
	}
	if left := ranges.Common(l.proto, extensionHeaders, packet.Proto.Size()); family == packet.FamilyIPv6 && p.unread(fragment) && len(left) > 0 {
		t = append(t, ownWay("%s %s", nextHeader, test(left))...)
	}
	return t
}

// askedTerm returns the test of the original destination port. Each range is a separate alternative, because nft 1.0.6 lists a set of such ports as
// "0x50 [invalid type]", and cannot read that listing.
func askedTerm(proto, direction string, ports []ir.Range) (t term) {
	for i := range ports {
		t = append(t, way(askedPort(proto, direction)+" "+valuesText(ports[i:i+1], packet.PortUDP, numberText))...)
	}
	return t
}

// askedPort returns the key of the original destination port of packets of a protocol and a direction. The test of the protocol tells nft that the
// key is a port.
func askedPort(proto, direction string) string {
	return "meta l4proto " + proto + " ct " + direction + " proto-dst"
}

// headerTerm returns the test of a field of the L4 header. prefix is the protocol, or th for a port of several protocols.
func headerTerm(m ir.Match, prefix string) (t term) {
	switch m.Field {
	case packet.DPort:
		return way(prefix + " dport " + valuesText(m.Values, packet.PortUDP, numberText))
	case packet.SPort:
		return way(prefix + " sport " + apart(valuesText(m.Values, packet.PortUDP, numberText)))
	case packet.Flags:
		return way(flagsTest(m.Values))
	case packet.MSS:
		return mssTerm(m)
	}
	names := map[string]map[uint32]string{"icmp": icmpNames, "icmpv6": icmpv6Names}[prefix]
	for _, test := range icmpTests(prefix, names, m.Values) {
		t = append(t, ownWay("%s", test)...)
	}
	return t
}

// mssTerm returns the test of the MSS option of a segment with SYN.
func mssTerm(m ir.Match) (t term) {
	all := []ir.Range{ranges.Span(0, packet.MSSMissing-1)}
	sizes := ranges.Common(m.Values, all, packet.MSS.Size())
	switch {
	case len(sizes) == 0:
	case slices.Equal(sizes, all):
		t = way("tcp option maxseg exists")
	default:
		t = way("tcp option maxseg size " + valuesText(sizes, packet.MSSMissing, numberText))
	}
	if m.Has(packet.MSSMissing) {
		t = append(t, way("tcp option maxseg missing")...)
	}
	return t
}

// apart returns a negated single number as a negated range. nft 1.0.6 merges tests of adjacent fields into one test. If the numbers are negated, the
// merged test would mean that one of the two fields differs (src/rule.c, stmt_reduce). nft does not merge ranges.
func apart(values string) string {
	number, not := strings.CutPrefix(values, "!= ")
	if !not || strings.ContainsAny(number, "{-") {
		return values
	}
	return values + "-" + number
}

// fragmentTerm returns the test for packets that are not fragmented, for first fragments or for later fragments. Most unfragmented IPv6 packets have
// no fragment header, and then every test of its fields fails.
func fragmentTerm(values []ir.Range, family uint32) (t term) {
	var has [3]bool
	for v := range has {
		has[v] = ir.Match{Values: values}.Has(uint32(v))
	}
	if family == packet.FamilyIPv4 {
		return ownWay("ip frag-off & %s", fragments4[has])
	}
	for _, text := range fragments6[has] {
		t = append(t, ownWay("%s", text)...)
	}
	return t
}

// The tests for kinds of fragments, indexed by the allowed kinds: unfragmented packets, first fragments, later fragments. In IPv4, 0x2000 is the flag
// "more fragments", and the bits below it are the offset.
var (
	fragments4 = map[[3]bool]string{
		{true, false, false}: "0x3fff == 0",
		{false, true, false}: "0x3fff == 0x2000",
		{false, false, true}: "0x1fff != 0",
		{true, true, false}:  "0x1fff == 0",
		{false, true, true}:  "0x3fff != 0",
		{true, false, true}:  "0x3fff != 0x2000",
	}
	fragments6 = map[[3]bool][]string{
		{true, false, false}: {"exthdr frag missing", "frag frag-off 0 frag more-fragments 0"},
		{false, true, false}: {"frag frag-off 0 frag more-fragments 1"},
		{false, false, true}: {"frag frag-off != 0"},
		{true, true, false}:  {"exthdr frag missing", "frag frag-off 0"},
		{false, true, true}:  {"frag frag-off != 0", "frag frag-off 0 frag more-fragments 1"},
		{true, false, true}:  {"exthdr frag missing", "frag frag-off != 0", "frag frag-off 0 frag more-fragments 0"},
	}
)

// fieldTerm returns the test of a field outside of the L4 header. ok is false if no test is needed.
func fieldTerm(m ir.Match, family, hops uint32) (t term, ok bool) {
	key := familyKeys[family]
	values, size := m.Values, m.Field.Size()
	if len(values) == 0 {
		return nil, true
	}
	switch m.Field {
	case packet.VLAN:
		return vlanTerm(m), true
	case packet.State:
		return stateTerm(values), true
	case packet.Length:
		key += " length"
		if family == packet.FamilyIPv6 {
			values = payloads(values)
		}
	case packet.TTL:
		key += map[uint32]string{packet.FamilyIPv4: " ttl", packet.FamilyIPv6: " hoplimit"}[family]
		values = ranges.Decrease(values, hops)
	case packet.DSCP:
		return ownWay("%s dscp %s", key, separateText(values, size)), true
	default:
		return nil, false
	}
	switch {
	case len(values) == 0:
		return nil, true
	case slices.Equal(values, []ir.Range{{First: 0, Last: size - 1}}):
		return nil, false
	}
	return ownWay("%s %s", key, valuesText(values, size, numberText)), true
}

// payloads converts lengths of IPv6 packets to payload lengths, which do not count the IPv6 header. 65535 stands for all greater lengths.
func payloads(lengths []ir.Range) (out []ir.Range) {
	const header, most = 40, 65535
	out = ranges.Decrease(lengths, header)
	if n := len(lengths); n > 0 && lengths[n-1].Last == most {
		out[len(out)-1].Last = most
	}
	return out
}

// vlanTerm returns the test of the VLAN tag of the received frame. The kernel stores the tag outside of the packet data. nft reads it as if it were
// in the link-layer header. nft's own VLAN keywords support only tags of 802.1Q.
func vlanTerm(m ir.Match) (t term) {
	const isTagged = "@ll,96,16 { 0x8100, 0x88a8 }"
	if m.Has(packet.VLANNone) {
		t = way(strings.Replace(isTagged, "{", "!= {", 1))
	}
	ids := []ir.Range{{First: 0, Last: packet.VLANNone - 1}}
	switch values := ranges.Common(m.Values, ids, packet.VLAN.Size()); {
	case len(values) == 0:
	case slices.Equal(values, ids):
		t = append(t, way(isTagged)...)
	default:
		test := valuesText(values, packet.VLANNone, numberText)
		if !strings.HasPrefix(test, "!=") {
			test = "== " + test
		}
		t = append(t, way(fmt.Sprintf("%s @ll,112,16 & 0x0fff %s", isTagged, test))...)
	}
	return t
}
