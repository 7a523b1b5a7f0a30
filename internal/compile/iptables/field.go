// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// scalar returns the condition that a numeric field has one of the given values. Every packet must have the field.
func (f *familyBuilder) scalar(m ir.Match) condition {
	switch m.Field {
	case packet.Length:
		return f.length(m.Values)
	case packet.TTL:
		return f.ttl(m.Values)
	case packet.DSCP:
		return f.dscp(m.Values)
	case packet.State:
		return f.stateTest(m.Values)
	}
	f.err = fmt.Errorf("iptables has no test of the field %s", m.Field)
	return condition{}
}

// location is the position of a field in the IP header, in the syntax of u32: the offset of four bytes, and a shift or
// mask.
type location struct {
	text string
	size uint32 // the number of values of the field there
}

// The positions of fields in the header of each family (RFC 791, 3.1; RFC 8200, 3).
var (
	totalLength  = [2]location{{"0&0xFFFF", 1 << 16}, {"4>>16", 1 << 16}} // for IPv6, the payload length
	timeToLive   = [2]location{{"8>>24", 256}, {"4&0xFF", 256}}
	codePoint    = [2]location{{"0>>18&0x3F", 64}, {"0>>22&0x3F", 64}}
	ipv4Protocol = location{"6&0xFF", 256}
)

// u32 returns the condition that a field has one of the given values. A u32 test has space for ten ranges. If there are more ranges, u32 excludes all
// other values, with as many tests as necessary.
func u32(l location, values []ir.Range) condition {
	const most = 10 // XT_U32_MAXSIZE of the kernel, minus one
	if len(values) <= most {
		return matching(u32Match(l, values, false))
	}
	var match []string
	for rest := ranges.Complement(values, l.size); len(rest) > 0; {
		n := min(most, len(rest))
		match = append(match, u32Match(l, rest[:n], true))
		rest = rest[n:]
	}
	return matching(match...)
}

func u32Match(l location, values []ir.Range, not bool) string {
	return fmt.Sprintf(`-m u32 %s--u32 "%s=%s"`, negated(not), l.text, joinRanges(values, ":"))
}

// joinRanges joins numbers and ranges by commas.
func joinRanges(values []ir.Range, to string) string {
	var words []string
	for _, r := range values {
		words = append(words, rangeText(r, to))
	}
	return strings.Join(words, ",")
}

func rangeText(r ir.Range, to string) string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d%s%d", r.First, to, r.Last)
}

// singleRange returns the range if values is a single range. If the complement of values is a single range, it returns that range and not is true.
func singleRange(values []ir.Range, size uint32) (r ir.Range, not, ok bool) {
	if len(values) == 1 {
		return values[0], false, true
	}
	if rest := ranges.Complement(values, size); len(rest) == 1 {
		return rest[0], true, true
	}
	return ir.Range{}, false, false
}

func (f *familyBuilder) length(values []ir.Range) condition {
	if r, not, ok := singleRange(values, packet.Length.Size()); ok {
		return matching(fmt.Sprintf("-m length %s--length %s", negated(not), rangeText(r, ":")))
	}
	if f.family == packet.FamilyIPv4 {
		return u32(totalLength[f.family], values)
	}
	const header = 40
	var payload []ir.Range
	for _, r := range values {
		if r.Last >= header {
			payload = append(payload, ir.Range{First: max(r.First, header) - header, Last: r.Last - header})
		}
	}
	if len(payload) == 0 {
		return condition{}
	}
	return u32(totalLength[f.family], payload)
}

func (f *familyBuilder) ttl(values []ir.Range) condition {
	name := [2]string{"ttl", "hl"}[f.family]
	r, not, ok := singleRange(values, packet.TTL.Size())
	switch {
	case ok && r.First == r.Last:
		return matching(fmt.Sprintf("-m %s %s--%s-eq %d", name, negated(not), name, r.First))
	case ok && !not && r.First == 0:
		return matching(fmt.Sprintf("-m %s --%s-lt %d", name, name, r.Last+1))
	case ok && !not && r.Last == packet.TTL.Size()-1:
		return matching(fmt.Sprintf("-m %s --%s-gt %d", name, name, r.First-1))
	}
	return u32(timeToLive[f.family], values)
}

func (f *familyBuilder) dscp(values []ir.Range) condition {
	if r, not, ok := singleRange(values, packet.DSCP.Size()); ok && r.First == r.Last {
		return matching(fmt.Sprintf("-m dscp %s--dscp %d", negated(not), r.First))
	}
	return u32(codePoint[f.family], values)
}

// The IPv4 tests for later fragments, and for all other packets.
const (
	isLater  = "-f"
	notLater = "! -f"
)

// fragment returns the condition that a packet is of the given kinds: not fragmented, a first fragment, or a later fragment.
func (f *familyBuilder) fragment(values []ir.Range) condition {
	var is [3]bool
	for v := range is {
		is[v] = (ir.Match{Values: values}).Has(uint32(v))
	}
	if f.family == packet.FamilyIPv4 {
		return fragment4(is[packet.FragmentNone], is[packet.FragmentFirst], is[packet.FragmentLater])
	}
	return fragment6(is[packet.FragmentNone], is[packet.FragmentFirst], is[packet.FragmentLater])
}

// fragment4 tests the fragment offset and the flag "more fragments", 0x2000.
func fragment4(whole, first, later bool) condition {
	switch {
	case whole && first && later:
		return always()
	case whole && first:
		return matching(notLater)
	case later && !whole && !first:
		return matching(isLater)
	case first && later:
		return matching(`-m u32 ! --u32 "4&0x3FFF=0"`)
	case whole && later:
		return matching(`-m u32 ! --u32 "4&0x3FFF=0x2000"`)
	case whole:
		return matching(`-m u32 --u32 "4&0x3FFF=0"`)
	}
	return matching(`-m u32 --u32 "4&0x3FFF=0x2000"`)
}

// fragment6 tests the fragment header. A packet whose fragment header has offset 0 and no "more fragments" flag counts
// as whole.
func fragment6(isWhole, first, later bool) condition {
	match := func(m string) lineTests { return lineTests{match: []string{m}} }
	any, without := match("-m frag"), match("-m ipv6header --soft ! --header frag")
	atomic, beginning := match("-m frag --fragfirst --fraglast"), match("-m frag --fragfirst --fragmore")
	either := match("-m frag --fragfirst")
	switch {
	case isWhole && first && later:
		return always()
	case isWhole && first:
		return condition{any: []lineTests{without, either}}
	case isWhole && later:
		return condition{any: []lineTests{{}}, not: []lineTests{beginning}}
	case isWhole:
		return condition{any: []lineTests{without, atomic}}
	case first && later:
		return condition{any: []lineTests{any}, not: []lineTests{atomic}}
	case first:
		return all(beginning)
	}
	return condition{any: []lineTests{any}, not: []lineTests{either}}
}

// proto returns the condition that a packet has one of the protocols. In IPv6, this is the protocol after the extension headers. A few protocols take
// one line each. In IPv4, a larger number of protocols is a u32 test.
func (f *familyBuilder) proto(values []ir.Range) condition {
	const few = 4
	if len(ranges.Complement(values, packet.Proto.Size())) == 0 {
		return always()
	}
	if r, not, ok := singleRange(values, packet.Proto.Size()); ok && r.First == r.Last && !isExtension[r.First] {
		return all(lineTests{proto: negated(not) + f.protoText(r.First)})
	}
	lines := f.protoLines(values)
	if f.family == packet.FamilyIPv6 {
		return f.either(lines, f.protoLines(ranges.Complement(values, packet.Proto.Size())))
	}
	if len(lines) > few || (ir.Match{Values: values}).Has(0) { // -p 0 matches any protocol
		return u32(ipv4Protocol, values)
	}
	return condition{any: lines}
}

// protoLines returns a line for each protocol. In IPv6, extension headers have no line, because ip6tables skips them.
func (f *familyBuilder) protoLines(values []ir.Range) (lines []lineTests) {
	for n := range packet.Proto.Size() {
		if (ir.Match{Values: values}).Has(n) && !(f.family == packet.FamilyIPv6 && isExtension[n]) {
			lines = append(lines, lineTests{proto: f.protoText(n)})
		}
	}
	return lines
}

// isExtension has the extension headers that the packet decoder and ip6tables skip (ipv6_find_hdr of the kernel).
var isExtension = map[uint32]bool{0: true, 43: true, 44: true, 60: true}

func (f *familyBuilder) protoText(n uint32) string {
	switch {
	case n == packet.ProtoTCP:
		return "tcp"
	case n == packet.ProtoUDP:
		return "udp"
	case n == packet.ProtoICMP && f.family == packet.FamilyIPv4:
		return "icmp"
	case n == packet.ProtoICMPv6 && f.family == packet.FamilyIPv6:
		return "ipv6-icmp"
	}
	return strconv.Itoa(int(n))
}
