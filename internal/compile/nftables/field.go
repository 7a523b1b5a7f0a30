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

// terms are the tests of protocol, header and fragment in a family. The destination port of packets of a direction is
// conntrack's, of a line for one protocol.
func (l l4Line) terms(family uint32, p chainInput) (terms []term) {
	prefix := protocolText(l.proto[0].First)
	if len(l.header) == 0 || l.proto[0].First != l.proto[len(l.proto)-1].Last {
		prefix = "th"
		if !slices.Equal(l.proto, match.AllProtocols) && !p.knowsProto(l.proto) {
			terms = append(terms, l.protoTerm(family, p))
		}
	}
	var asked []term // behind the others: in front of `udp sport`, nft would leave its protocol out of what it lists, and not read that again
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

// nextHeader is the key of the protocol of later fragments of IPv6 for which no test of `meta l4proto` holds, negated or not, and
// extensionHeaders are these protocols: the kernel looks behind them and finds nothing (net/ipv6/exthdrs_core.c, ipv6_find_hdr).
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

// askedTerm tests that port. Each range is a way of its own: nft 1.0.6 lists a set of such ports as "0x50 [invalid type]", and does not read
// that again.
func askedTerm(proto, direction string, ports []ir.Range) (t term) {
	for i := range ports {
		t = append(t, way(askedPort(proto, direction)+" "+valuesText(ports[i:i+1], packet.PortUDP, numberText))...)
	}
	return t
}

// askedPort is the key of the destination port that packets of a protocol and a direction came in with. nft knows that it is a
// port by the test of the protocol.
func askedPort(proto, direction string) string {
	return "meta l4proto " + proto + " ct " + direction + " proto-dst"
}

// headerTerm writes a test of the L4 header; prefix is the protocol, or th for a port of several.
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

// mssTerm writes a test of the MSS option of a segment with SYN.
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

// apart writes a negated number as a range. nft 1.0.6 makes one test of those of neighbouring fields, which for negated
// ones means that one of the two differs (src/rule.c, stmt_reduce).
func apart(values string) string {
	number, not := strings.CutPrefix(values, "!= ")
	if !not || strings.ContainsAny(number, "{-") {
		return values
	}
	return values + "-" + number
}

// fragmentTerm writes a test of which fragment a packet is. IPv6 packets that are whole mostly have no fragment header,
// of whose fields then no test holds.
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

// The tests for none, first and later being allowed or not. In IPv4 0x2000 is the flag that more fragments follow, the
// bits below it are the offset.
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

// fieldTerm writes a test of a field that does not depend on the L4 protocol; ok is false when there is nothing to test.
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
		var words []string
		for v := range packet.State.Size() {
			if m.Has(v) {
				words = append(words, ir.ValueText(packet.State, v))
			}
		}
		return way("ct state " + strings.Join(words, ",")), true
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

// payloads are lengths of IPv6 packets as their headers count, without themselves. 65535 stands for all that is more.
func payloads(lengths []ir.Range) (out []ir.Range) {
	const header, most = 40, 65535
	out = ranges.Decrease(lengths, header)
	if n := len(lengths); n > 0 && lengths[n-1].Last == most {
		out[len(out)-1].Last = most
	}
	return out
}

// vlanTerm tests the tag that the frame came with, which the kernel keeps beside the packet and nft finds in front of it.
// nft's own words know the tags of 802.1Q only.
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
