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

// portTest tests a TCP or UDP port: by the protocol's own match, by multiport, or by a set of ports. In IPv6 the own
// match does not do: iptables-nft makes an expression of it that takes a later fragment's data for a header.
func (f *familyBuilder) portTest(m ir.Match) []lineTests {
	if f.asked != nil && m.Field == packet.DPort {
		return f.askedPorts(m.Values)
	}
	return []lineTests{f.packetPort(m)}
}

// packetPort is portTest for a port that is in the packet.
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

// flagLines are lines that together hold for some values of the TCP flags, each for other ones.
func flagLines(values []ir.Range) (lines []lineTests) {
	m := ir.Match{Values: values}
	for _, c := range flagCubes(func(v uint32) bool { return m.Has(v) }) {
		lines = append(lines, lineTests{header: []string{"--tcp-flags " + flagText(c.mask) + " " + flagText(c.value)}})
	}
	return lines
}

// flagCube is the values of which the flags in mask are those in value.
type flagCube struct{ mask, value uint32 }

const numFlags = 6 // that iptables tests: sixFlags says that the others do not matter

// flagCubes are the fewest disjoint cubes, of those that halving gives, of the values that has reports.
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

// icmpLines are lines for types with all codes, and for single types and codes.
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

// negation is the opposite of an ICMP test, in a form of which a line can have several.
func (a lineTests) negation() string {
	if len(a.header) > 0 {
		return "-m icmp ! " + a.header[0]
	}
	return strings.Replace(a.match[0], "--u32", "! --u32", 1)
}

// icmpLine tests a type, and a code if given. To the icmp match of IPv4 type 255 is any, so that takes u32.
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

// mssLines are lines for the MSS option of segments with SYN: the match holds for one range of sizes, or where there is none of them, and
// drops a segment whose options go past the packet (net/netfilter/xt_tcpmss.c).
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
