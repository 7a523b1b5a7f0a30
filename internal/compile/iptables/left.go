// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// checkLines has the lines, by family, for checks that rules cannot express. In IPv6, u32 finds the L4 header only if
// no extension header precedes it.
var checkLines = map[packet.Check][2][]lineTests{
	packet.Truncated:   {packet.FamilyIPv6: {{match: []string{`-m u32 --u32 "4>>8=0"`}}}}, // no payload, in front of hop-by-hop options
	packet.SourceRoute: {packet.FamilyIPv6: {{match: []string{"-m rt --rt-type 0"}}}},
	packet.TinyFragment: {packet.FamilyIPv4: {
		{proto: "tcp", match: []string{`-m u32 --u32 "4&0x1FFF=1:2"`}}, // offsets of 8 or 16 bytes, within a header of 20
		{proto: "tcp", match: []string{`-m u32 --u32 "4&0x3FFF=0x2000"`, // u32 finds nothing behind the packet's end
			`-m u32 ! --u32 "0>>22&0x3C@16=0:0xFFFFFFFF"`}},
	}},
	packet.AtomicFragment: {packet.FamilyIPv6: {{match: []string{"-m frag --fragfirst --fraglast"}}}},
	packet.SYNNoMSS: both(
		lineTests{proto: "tcp", header: []string{synOnly, "! --tcp-option 2"}}),
	packet.SYNWindowZero: perFamily(
		lineTests{proto: "tcp", header: []string{synOnly}},
		`"0>>22&0x3C@12&0xFFFF=0"`, `"3&0xFF=6&&52&0xFFFF=0"`),
	packet.ACKZero: perFamily(
		lineTests{proto: "tcp", header: []string{"--tcp-flags ACK ACK"}},
		`"0>>22&0x3C@8=0"`, `"3&0xFF=6&&48=0"`),
	packet.UDP6Checksum: {packet.FamilyIPv6: {{proto: "udp", match: []string{`-m u32 --u32 "3&0xFF=17&&44&0xFFFF=0"`}}}},
	packet.IPProtocol:   {packet.FamilyIPv6: {{match: []string{`-m u32 --u32 "3&0xFF=148:252,255"`}}}},
}

const synOnly = "--tcp-flags SYN,ACK SYN"

// both returns TCP lines for both families. The two families need different tests to exclude later fragments.
func both(a lineTests) [2][]lineTests {
	return [2][]lineTests{{a.and(lineTests{match: []string{notLater}})}, {a.and(hasPorts)}}
}

// perFamily returns lines that end with a u32 test for each family.
func perFamily(a lineTests, v4, v6 string) [2][]lineTests {
	lines := both(a)
	for family, text := range []string{v4, v6} {
		lines[family][0] = lines[family][0].and(lineTests{match: []string{"-m u32 --u32 " + text}})
	}
	return lines
}

const (
	beforeNetfilter = "the kernel drops such a packet before iptables sees it, and counts it in its own statistics"
	extensionsHide  = "IPv6 packets with extension headers are not looked into: u32 cannot step over them"
)

// checksLeft has the checks that iptables does not make, or not for all packets. The text describes what the kernel itself does with such packets.
var checksLeft = map[packet.Check]string{
	packet.Truncated: "a packet shorter than its IP header says is dropped by the kernel before iptables sees it; one that " +
		"ends within its L4 header by the first line that asks for a port, flags or an ICMP type, or by the protocol",
	packet.IPHeader:  beforeNetfilter,
	packet.VLANDepth: "the tags are gone when IP has the packet; a frame with a tag that no VLAN device takes never gets there",
	packet.SourceMAC: "the mac match compares whole addresses, not the group bit; the kernel does not look at it",
	packet.SourceRoute: "IPv6 type 0 routing headers are dropped; IPv4 options cannot be searched by iptables: the kernel " +
		"drops source routes itself where accept_source_route is 0",
	packet.IPOptions: "iptables cannot search IPv4 options; the kernel drops packets with options of bad length",
	packet.TinyFragment: "dropped are IPv4 TCP fragments that end or begin within the first 20 bytes, and IPv6 ones that end " +
		"within extension headers; other IPv6 ones that end within the L4 header the kernel drops when it puts the packet " +
		"together; what conntrack puts together is checked as a whole",
	packet.FragmentOverflow: "no test adds a fragment's offset and length; the kernel drops such a fragment when it puts " +
		"the datagram together",
	packet.ExtHeaders: "no test counts extension headers; the kernel reads all of them",
	packet.ExtOrder:   "no test knows the order of extension headers; the kernel drops a hop-by-hop header that is not first",
	packet.Land:       "no test compares the two addresses; the kernel drops IPv4 packets that come from its own addresses",
	packet.TCPHeader:  "no test compares the header length with that of the packet; TCP itself drops such a segment",
	packet.TCPOptions: "no test follows the options; TCP itself ignores those behind one of bad length",
	packet.SYNData:    "no test compares the header length with that of the packet; TCP takes the data for Fast Open only",
	packet.SYNNoMSS: "done; but iptables looks for the option behind an end of options and behind one of bad length too, " +
		"and drops a SYN whose header length is below 20",
	packet.SYNWindowZero: "done; but " + extensionsHide,
	packet.ACKZero:       "done; but " + extensionsHide,
	packet.UDPLength:     "no test compares the length with that of the packet; UDP itself drops such a datagram",
	packet.UDP6Checksum:  "done; but " + extensionsHide + "; UDP drops such a datagram unless a socket allows it",
	packet.IPProtocol:    "done; but " + extensionsHide,
	packet.IPChecksum:    beforeNetfilter,
}

// conditionNotes adds notes about rules with payload tests and limits whose effect differs from that in XDP.
func (b *builder) conditionNotes(note func(string)) {
	rules := b.pl.Program.Rules
	if slices.ContainsFunc(rules, func(r ir.Rule) bool { return match.AsksText(&r) }) {
		note("payload: contains: packets with IPv4 options or IPv6 extension headers are not searched; before Linux 6.2 a text " +
			"is also found that only begins within the bytes that are searched")
	}
	if slices.ContainsFunc(rules, func(r ir.Rule) bool { return asksPlace(&r) }) {
		note("payload: at: " + extensionsHide + "; of less than 4 bytes behind an IPv4 or TCP header nothing is seen")
	}
	if slices.ContainsFunc(b.pl.Program.Limits, func(l ir.Limit) bool { return l.Src != nil || l.Dst != nil }) {
		note("over: while a limit holds as many prefixes as it can, hashlimit drops packets of others, whatever the rule's verdict")
	}
}

func asksPlace(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Payload, func(m ir.PayloadMatch) bool { return len(m.At) > 0 })
}
