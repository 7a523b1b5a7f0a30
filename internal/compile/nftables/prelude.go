// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strings"
)

// guardLine is a line before the rules of a chain: a line of a check, or a line that sends later fragments to another chain.
type guardLine struct {
	remark string
	text   string   // its tests
	words  []string // the rest of the line
}

// A packetKind is a class of packets to which a line applies. No packet belongs to two kinds of the same field. So lines for two such kinds may be
// reordered.
type packetKind struct {
	field string
	name  string // part of the name of the chain for such lines
	test  string // a test that all packets of the kind pass, and few others; "": lines need no such test
}

// kindOf returns the kind of packets that a line can match. The kind has no field if the line can match several kinds.
func kindOf(text string) packetKind {
	first, rest, _ := strings.Cut(strings.TrimPrefix(text, "meta l4proto "), " ")
	ipv6 := func(word string) bool { return slices.Contains([]string{"ip6", "frag", "exthdr", "rt"}, word) }
	switch {
	case ipv6(first) || slices.ContainsFunc(strings.Fields(rest), ipv6) && !strings.HasPrefix(first, "icmp"):
		return packetKind{"family", "ipv6", "meta nfproto ipv6"}
	case first == "ip" && strings.Contains(rest, "frag-off"):
		return packetKind{"family", "ipv4-fragments", "ip frag-off & 0x3fff != 0"}
	case first == "ip":
		return packetKind{"family", "ipv4", ""}
	case slices.Contains([]string{"tcp", "udp", "icmp", "icmpv6"}, first):
		return packetKind{"protocol", first, "meta l4proto " + first}
	}
	return packetKind{}
}

// within rewrites lines for a chain that only packets of the kind reach. In tests of ports it replaces the protocol by th, so that nft does not test
// the protocol again.
func (k packetKind) within(lines []guardLine) []guardLine {
	lines = slices.Clone(lines)
	for i := range lines {
		for _, port := range []string{" dport ", " sport "} {
			if value, ok := strings.CutPrefix(lines[i].text, k.name+port); ok {
				lines[i].text = "th" + port + value
			}
		}
	}
	return lines
}

// guards writes the lines that precede the rules of a chain, in such a way that a packet is tested against few of them. Lines that only packets of
// one kind can match are in a chain of their own. Lines that can match the same packet keep their order.
func (n *generator) guards(chain string, lines []guardLine) {
	remark := ""
	for len(lines) > 0 {
		field := kindOf(lines[0].text).field
		end := slices.IndexFunc(lines, func(l guardLine) bool { return kindOf(l.text).field != field })
		if end < 0 {
			end = len(lines)
		}
		run := lines[:end]
		lines = lines[end:]
		for len(run) > 0 {
			var same []guardLine
			same, run = take(run, field)
			remark = n.guardsOf(chain, same, remark)
		}
	}
}

// take splits a run of lines into the lines of the same kind as the first line, and the others. Lines for all IPv4 packets and lines for IPv4
// fragments keep their order.
func take(run []guardLine, field string) (same, others []guardLine) {
	first := kindOf(run[0].text)
	if field == "" {
		return run, nil
	}
	blocked := false
	for _, l := range run {
		kind := kindOf(l.text)
		switch {
		case kind == first && !blocked:
			same = append(same, l)
		default:
			blocked = blocked || strings.HasPrefix(kind.name, "ipv4") && strings.HasPrefix(first.name, "ipv4")
			others = append(others, l)
		}
	}
	return same, others
}

// guardsOf writes lines for packets of one kind. remark is the remark of the previous line. It returns the remark of the last line.
func (n *generator) guardsOf(chain string, lines []guardLine, remark string) string {
	kind := kindOf(lines[0].text)
	if len(lines) == 1 || kind.test == "" {
		return n.plainGuards(lines, remark)
	}
	n.line(kind.test, "jump", n.called(chain+"-checks-"+kind.name, func() { n.plainGuards(kind.within(lines), "") }))
	return ""
}

// plainGuards writes lines in order. Consecutive lines with the same remark get the remark only once. It returns the remark of the last line.
func (n *generator) plainGuards(lines []guardLine, remark string) string {
	for _, l := range lines {
		if l.remark != remark {
			n.remark("%s", l.remark)
			remark = l.remark
		}
		n.line(append([]string{l.text}, l.words...)...)
	}
	return remark
}
