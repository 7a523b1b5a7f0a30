// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// valuesText returns a test for values of a domain from 0 to size-1. It uses = or !=, whichever is shorter, with a single value or a list.
func valuesText(values []ir.Range, size uint32, text func(uint32) string) string {
	operator := ""
	if others := ranges.Complement(values, size); len(others) > 0 && len(others) < len(values) {
		values, operator = others, "!= "
	}
	var words []string
	for _, r := range values {
		words = append(words, rangeWords(r, text)...)
	}
	return operator + listText(words)
}

// separateText does the same as valuesText, but without ranges. nft does not support ranges for parts of a byte.
func separateText(values []ir.Range, size uint32) string {
	each := func(ranges []ir.Range) (words []string) {
		for _, r := range ranges {
			for v := r.First; v <= r.Last; v++ {
				words = append(words, numberText(v))
			}
		}
		return words
	}
	in, out := each(values), each(ranges.Complement(values, size))
	if len(out) > 0 && len(out) < len(in) {
		return "!= " + listText(out)
	}
	return listText(in)
}

// rangeWords returns the words of a range. A short range of named values becomes one word for each value.
func rangeWords(r ir.Range, text func(uint32) string) (words []string) {
	const short = 6
	named := r.Last-r.First < short
	for v := r.First; named && v <= r.Last; v++ {
		words = append(words, text(v))
		named = named && strings.Trim(text(v), "0123456789") != ""
	}
	switch {
	case r.First == r.Last:
		return []string{text(r.First)}
	case named:
		return words
	}
	return []string{fmt.Sprintf("%d-%d", r.First, r.Last)}
}

// listText returns one word unchanged, and several words as a set.
func listText(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return blockText(words)
}

// blockText returns words as a set or a map, wrapped into lines.
func blockText(words []string) string {
	const most = 100
	var b strings.Builder
	b.WriteString("{")
	column := 0
	for i, w := range words {
		if i > 0 {
			b.WriteString(",")
		}
		if column > most {
			b.WriteString("\n\t\t\t")
			column = 0
		} else {
			b.WriteString(" ")
		}
		b.WriteString(w)
		column += len(w) + 2
	}
	b.WriteString(" }")
	return b.String()
}

func numberText(v uint32) string { return fmt.Sprint(v) }

// protocolText returns the name of a well-known protocol, and the number of any other.
func protocolText(v uint32) string {
	if name, ok := map[uint32]string{packet.ProtoICMP: "icmp", packet.ProtoTCP: "tcp", packet.ProtoUDP: "udp", packet.ProtoICMPv6: "icmpv6"}[v]; ok {
		return name
	}
	return numberText(v)
}

var flagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"}

// flagsText returns the names of TCP flags, joined by |.
func flagsText(v uint32) string {
	var names []string
	for bit, name := range flagNames {
		if v>>bit&1 == 1 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "0x0"
	}
	return strings.Join(names, "|")
}

// flagsTest returns a test of the flags byte. The test masks the relevant bits, and compares them with the allowed or the forbidden values.
func flagsTest(values []ir.Range) string {
	has := func(v uint32) bool { return ir.Match{Values: values}.Has(v) }
	mask := uint32(0)
	for v := range uint32(packet.FlagsNone) {
		for bit := range len(flagNames) {
			if has(v) != has(v^1<<bit) {
				mask |= 1 << bit
			}
		}
	}
	var in, out []string
	for v := range uint32(packet.FlagsNone) {
		switch {
		case v&^mask != 0:
		case has(v):
			in = append(in, flagsText(v))
		default:
			out = append(out, flagsText(v))
		}
	}
	field := fmt.Sprintf("tcp flags & (%s)", flagsText(mask))
	switch {
	case mask == packet.FlagsNone-1:
		field = "tcp flags"
	case mask&(mask-1) == 0:
		field = "tcp flags & " + flagsText(mask)
	}
	if len(out) < len(in) {
		return field + " != " + listText(out)
	}
	return field + " == " + listText(in)
}

var (
	icmpNames = map[uint32]string{
		0: "echo-reply", 3: "destination-unreachable", 4: "source-quench", 5: "redirect", 8: "echo-request",
		9: "router-advertisement", 10: "router-solicitation", 11: "time-exceeded", 12: "parameter-problem",
	}
	icmpv6Names = map[uint32]string{
		1: "destination-unreachable", 2: "packet-too-big", 3: "time-exceeded", 4: "parameter-problem",
		128: "echo-request", 129: "echo-reply", 130: "mld-listener-query", 131: "mld-listener-report",
		132: "mld-listener-done", 133: "nd-router-solicit", 134: "nd-router-advert", 135: "nd-neighbor-solicit",
		136: "nd-neighbor-advert", 137: "nd-redirect", 143: "mld2-listener-report",
	}
)

// icmpTests returns tests of the type and code. The values are type<<8|code. One test is for all types of which every code is allowed. Each other
// type has a test of its own.
func icmpTests(key string, names map[uint32]string, values []ir.Range) (tests []string) {
	name := func(v uint32) string {
		if n, ok := names[v]; ok {
			return n
		}
		return numberText(v)
	}
	var whole []ir.Range
	var some []string
	for t := range uint32(256) {
		codes := ranges.Shift(ranges.Common(values, []ir.Range{{First: t << 8, Last: t<<8 | 0xff}}, packet.ICMPv6), t<<8)
		switch {
		case len(codes) == 0:
		case slices.Equal(codes, []ir.Range{{First: 0, Last: 0xff}}):
			whole = append(whole, ir.Range{First: t, Last: t})
		default:
			some = append(some, fmt.Sprintf("%s type %s %s code %s", key, name(t), key, valuesText(codes, 256, numberText)))
		}
	}
	if whole != nil {
		tests = append(tests, key+" type "+valuesText(ranges.Normalize(whole), 256, name))
	}
	return append(tests, some...)
}
