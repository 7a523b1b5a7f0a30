package nftables

import (
	"slices"
	"strings"
)

// guardLine is a line of a chain before its rules: a check's, or one that sends later fragments elsewhere.
type guardLine struct {
	remark string
	text   string   // its tests
	words  []string // what follows them
}

// A packetKind is a kind of packets that some lines are for. Packets of two kinds of the same field are never the same ones, so
// their lines may change places.
type packetKind struct {
	field string
	name  string // of the chain with such lines
	test  string // that all such packets pass, and others seldom; "": lines need none
}

// kindOf is the kind of packets that a line can match, without a field when it is for packets of several.
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

// within are lines for packets of the kind in a chain of theirs: with a port of any protocol, nft does not ask for it again.
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

// guards writes lines before the rules of a chain, such that a packet is asked for few of them: those that only packets of one
// kind can match stand in a chain of their own. Lines that could match the same packet stay in their order.
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

// take takes from a run of lines those whose packets are of the kind of the first one. Lines for all packets of IPv4, and for
// its fragments alone, stay in their order.
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

// guardsOf writes lines for packets of one kind, behind a line with a remark, and returns that of the last line.
func (n *generator) guardsOf(chain string, lines []guardLine, remark string) string {
	kind := kindOf(lines[0].text)
	if len(lines) == 1 || kind.test == "" {
		return n.plainGuards(lines, remark)
	}
	n.line(kind.test, "jump", n.called(chain+"-checks-"+kind.name, func() { n.plainGuards(kind.within(lines), "") }))
	return ""
}

// plainGuards writes lines in their order, each remark once.
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
