// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"maps"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// rules writes the rules of a chain, in order. If that saves packets many tests, it writes verdict maps. These select chains that contain only the
// rules that can match the packet.
func (n *generator) rules(chain string, steps []plan.Step, s plan.Stage, p chainInput) {
	list := make([]plan.Rule, len(steps))
	for i, step := range steps {
		list[i] = n.weighed(step, s, p)
		if !step.Again { // adds the counters in the order of the rules
			n.count(step.Rule)
		}
	}
	n.nodes(chain, p, plan.Arrange(n.plan.Program.Sets, list), nil, func(i int, protos []ir.Range) {
		p.protos = protos
		n.rule(steps[i], s, p)
	})
}

// weighed returns a rule of a chain together with its number of lines, as input for plan.Arrange.
func (n *generator) weighed(step plan.Step, s plan.Stage, p chainInput) plan.Rule {
	r := n.plan.Of(step, s)
	out := plan.Rule{Rule: r, Fixed: r.Protect > 0}
	if step.Again {
		p.outside = nil
	} else if n.plan.Joined(step.Rule) {
		return out
	}
	w := n.ways(r, p)
	out.Lines = len(w.except) + len(w.lines)
	return out
}

// nodes writes rules and lookups for packets of the given protocols. nil means all protocols.
func (n *generator) nodes(chain string, p chainInput, nodes []plan.Node, protos []ir.Range, write ruleWriter) {
	for _, node := range nodes {
		if node.Lookup == nil {
			write(node.Rule, protos)
		} else {
			n.lookup(chain, p, node.Lookup, protos, write)
		}
	}
}

// ruleWriter writes a rule for packets of the given protocols.
type ruleWriter func(rule int, protos []ir.Range)

// selected returns the protocols of the packets for which a lookup selects a list. protos are the protocols of all packets that reach the lookup.
func selected(l *plan.Lookup, list int, protos []ir.Range) []ir.Range {
	if l.Key != plan.Proto {
		return protos
	}
	var out []ir.Range
	for _, m := range l.Maps {
		if m == nil {
			continue
		}
		for _, e := range m.Elements {
			if e.List == list {
				out = append(out, ranges.Span(e.First.Number(), e.Last.Number()))
			}
		}
	}
	return ranges.Normalize(out)
}

// lookup writes a verdict map and the chains that the map selects.
func (n *generator) lookup(chain string, p chainInput, l *plan.Lookup, protos []ir.Range, write ruleWriter) {
	verdicts := make([]string, len(l.Lists))
	for family, m := range l.Maps {
		if m == nil {
			continue
		}
		words := map[string][]string{}
		for _, e := range m.Elements {
			text := elementText(l, family, e)
			if verdicts[e.List] == "" {
				name := fmt.Sprintf("%s-%s%s", chain, chainWords[l.Key], text)
				verdicts[e.List] = " : jump " + n.called(name, func() {
					n.nodes(name, p, l.Lists[e.List], selected(l, e.List, protos), write)
				})
			}
			key := keyText(l, family, p.direction)
			if p.direction != "" && l.Key == plan.DPort { // nft accepts the port from conntrack only together with one fixed protocol
				proto, ports := portsText(e)
				key, text = askedPort(protocolText(proto), p.direction), ports
			}
			words[key] = append(words[key], text+verdicts[e.List])
			if l.Key == plan.Proto && p.unread(p.fragments) && (ir.Match{Values: extensionHeaders}).Has(e.First.Number()) {
				words[nextHeader] = append(words[nextHeader], text+verdicts[e.List])
			}
		}
		n.remark("by %s, those of the rules that can match", keyNames[l.Key])
		for _, key := range slices.Sorted(maps.Keys(words)) {
			n.line(key, "vmap", blockText(words[key]))
		}
	}
}

// The names of keys in remarks, and the prefixes for the names of chains that elements select.
var (
	keyNames = [...]string{
		plan.Proto: "protocol", plan.DPort: "destination port", plan.SPort: "source port", plan.Src: "source",
		plan.Dst: "destination",
	}
	chainWords = [...]string{
		plan.Proto: "", plan.DPort: "port-", plan.SPort: "sport-", plan.Src: "from-", plan.Dst: "to-",
	}
)

// keyText returns the key expression of a map. direction is the direction of packets whose destination has been translated, or "" for other packets.
// A map of protocols and ports has no ranges.
func keyText(l *plan.Lookup, family int, direction string) string {
	switch l.Key {
	case plan.Proto:
		return "meta l4proto"
	case plan.DPort, plan.SPort:
		field := map[plan.Key]string{plan.DPort: " dport", plan.SPort: " sport"}[l.Key]
		if l.Joined() {
			return "meta l4proto . th" + field
		}
		if l.Known >= 0 {
			return "th" + field
		}
		proto, _ := l.OnlyProto()
		return protocolText(proto) + field
	}
	side := map[plan.Key]int{plan.Src: 0, plan.Dst: match.DstSide}[l.Key]
	text := chainInput{direction: direction}.address(side, uint32(family))
	if m := l.Maps[family]; !m.Intervals && m.Size > 0 {
		text += " & " + maskText(uint32(family), addressBits[family]-m.Size)
	}
	return text
}

// elementText returns the values of an element in the syntax of nft.
func elementText(l *plan.Lookup, family int, e plan.Element) string {
	switch l.Key {
	case plan.Proto:
		return protocolText(e.First.Number())
	case plan.DPort, plan.SPort:
		proto, text := portsText(e)
		if l.Joined() {
			return protocolText(proto) + " . " + text
		}
		return text
	}
	from, to := e.First.Addr4(), e.Last.Addr4()
	if family == packet.FamilyIPv6 {
		from, to = e.First.Addr6(), e.Last.Addr6()
	}
	if !l.Maps[family].Intervals {
		return from.String()
	}
	return string(appendRange(nil, netipx.IPRangeFrom(from, to)))
}

// portsText returns the text of an element of ports, and their protocol.
func portsText(e plan.Element) (proto uint32, text string) {
	first, last := e.First.Number(), e.Last.Number()
	proto = packet.ProtoTCP
	if first >= packet.PortUDP {
		proto, first, last = packet.ProtoUDP, first-packet.PortUDP, last-packet.PortUDP
	}
	text = numberText(first)
	if first != last {
		text += "-" + numberText(last)
	}
	return proto, text
}
