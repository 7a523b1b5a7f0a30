// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// portTest returns the lines that test a TCP or UDP port: by the protocol's own match, by multiport, or by a set of ports. In IPv6 the protocol's own
// match cannot be used: iptables-nft translates it to an expression that reads the data of a later fragment as a header.
func (f *familyBuilder) portTest(m ir.Match) []lineTests {
	if f.asked != nil && m.Field == packet.DPort {
		return f.askedPorts(m.Values)
	}
	return []lineTests{f.packetPort(m)}
}

// packetPort does the same as portTest, but only for the port in the packet, not for the original port of a translated packet.
func (f *familyBuilder) packetPort(m ir.Match) lineTests {
	word := map[packet.Field]string{packet.DPort: "dport", packet.SPort: "sport"}[m.Field]
	rest := ranges.Complement(m.Values, packet.PortUDP)
	if r, not, ok := singleRange(m.Values, packet.PortUDP); ok && f.family == packet.FamilyIPv4 {
		return lineTests{header: []string{negated(not) + "--" + word + " " + rangeText(r, ":")}}
	}
	const slots = 15 // XT_MULTI_PORTS of the kernel; a range takes two
	match := func(text string) lineTests { return lineTests{whole: true, match: []string{text}} }
	switch {
	case portSlots(m.Values) <= slots:
		return match(fmt.Sprintf("-m multiport --%ss %s", word, joinRanges(m.Values, ":")))
	case portSlots(rest) <= slots:
		return match(fmt.Sprintf("-m multiport ! --%ss %s", word, joinRanges(rest, ":")))
	}
	return match("-m set --match-set " + f.portSet(m.Values) + side(m.Field))
}

func portSlots(values []ir.Range) (n int) {
	for _, r := range values {
		n++
		if r.First != r.Last {
			n++
		}
	}
	return n
}

// flagLines returns lines for the given values of the TCP flags. For each of these values exactly one line holds.
func flagLines(values []ir.Range) (lines []lineTests) {
	m := ir.Match{Values: values}
	for _, c := range flagCubes(func(v uint32) bool { return m.Has(v) }) {
		lines = append(lines, lineTests{header: []string{"--tcp-flags " + flagText(c.mask) + " " + flagText(c.value)}})
	}
	return lines
}

// flagCube is the set of flag values v with v&mask == value.
type flagCube struct{ mask, value uint32 }

const numFlags = 6 // the flags that iptables can test; sixFlags of package plan requires that the others do not matter

// flagCubes returns a list of disjoint cubes that together contain the values for which has returns true. It is the smallest list that repeated
// halving can produce.
func flagCubes(has func(uint32) bool) []flagCube {
	known := map[flagCube][]flagCube{}
	var split func(c flagCube) []flagCube
	split = func(c flagCube) (best []flagCube) {
		if done, ok := known[c]; ok {
			return done
		}
		defer func() { known[c] = best }()
		switch in := countIn(c, has); in {
		case 0:
			return nil
		case 1 << (numFlags - bits.OnesCount32(c.mask)):
			return []flagCube{c}
		}
		for bit := uint32(1); bit < 1<<numFlags; bit <<= 1 {
			if c.mask&bit != 0 {
				continue
			}
			low, high := split(flagCube{c.mask | bit, c.value}), split(flagCube{c.mask | bit, c.value | bit})
			if best == nil || len(low)+len(high) < len(best) {
				best = append(low[:len(low):len(low)], high...)
			}
		}
		return best
	}
	return split(flagCube{})
}

func countIn(c flagCube, has func(uint32) bool) (n int) {
	for v := range uint32(1 << numFlags) {
		if v&c.mask == c.value && has(v) {
			n++
		}
	}
	return n
}

func flagText(flags uint32) string {
	var words []string
	for bit, word := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"} {
		if flags>>bit&1 == 1 {
			words = append(words, word)
		}
	}
	if words == nil {
		return "NONE"
	}
	return strings.Join(words, ",")
}

// icmpLines returns lines for the given values of type and code: one line for each type with all codes, and one for each other type and code.
func (f *familyBuilder) icmpLines(values []ir.Range) (lines []lineTests) {
	for _, r := range values {
		for v := r.First; v <= r.Last; {
			kind, code := v>>8, v&0xff
			if code == 0 && r.Last >= v|0xff {
				lines = append(lines, f.icmpLine(kind, ""))
				v += 0x100
				continue
			}
			lines = append(lines, f.icmpLine(kind, fmt.Sprint(code)))
			v++
		}
	}
	return lines
}

// negation returns the negated ICMP test, in a form that may occur several times in a line.
func (a lineTests) negation() string {
	if len(a.header) > 0 {
		return "-m icmp ! " + a.header[0]
	}
	return strings.Replace(a.match[0], "--u32", "! --u32", 1)
}

// icmpLine returns the test of a type, and of a code if one is given. The icmp match of IPv4 takes type 255 for any type, so u32 tests for that type.
func (f *familyBuilder) icmpLine(kind uint32, code string) lineTests {
	const any = 255
	switch {
	case kind == any && f.family == packet.FamilyIPv4 && code == "":
		return lineTests{whole: true, match: []string{`-m u32 --u32 "0>>22&0x3C@0>>24=255"`}}
	case kind == any && f.family == packet.FamilyIPv4:
		return lineTests{whole: true, match: []string{`-m u32 --u32 "0>>22&0x3C@0>>24=255&&0>>22&0x3C@0>>16&0xFF=` + code + `"`}}
	case code != "":
		code = "/" + code
	}
	option := [2]string{"--icmp-type", "--icmpv6-type"}[f.family]
	return lineTests{whole: true, header: []string{fmt.Sprintf("%s %d%s", option, kind, code)}}
}

// mssLines returns lines for the MSS option of segments with SYN. The match tcpmss tests for one range of sizes, or for a size outside it. It drops a
// segment whose options extend beyond the packet (net/netfilter/xt_tcpmss.c).
func mssLines(m ir.Match) (lines []lineTests) {
	one := func(not bool, r ir.Range) {
		lines = append(lines, lineTests{match: []string{"-m tcpmss " + negated(not) + "--mss " + rangeText(r, ":")}})
	}
	sizes := ir.Range{First: 0, Last: packet.MSSMissing - 1}
	left := ranges.Common(m.Values, []ir.Range{match.WithSYN}, packet.MSS.Size())
	rest := ranges.Common(ranges.Complement(m.Values, packet.MSS.Size()), []ir.Range{match.WithSYN}, packet.MSS.Size())
	if m.Has(packet.MSSMissing) && len(rest) == 1 {
		one(true, rest[0])
		return lines
	}
	for _, r := range ranges.Common(left, []ir.Range{sizes}, packet.MSS.Size()) {
		one(false, r)
	}
	if m.Has(packet.MSSMissing) {
		one(true, sizes)
	}
	return lines
}
