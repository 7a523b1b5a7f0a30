package flowspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// keys are the keys of a rule or of its `not`, each with its values.
type keys []string

func (k *keys) add(key string, words []string) {
	if len(words) > 0 {
		*k = append(*k, fmt.Sprintf("%s: ['%s']", key, strings.Join(words, "', '")))
	}
}

// line is the rule that drops the packets of a box but those from the sources except, as it stands under rules.
func (b *box) line(name string, ipv6 bool, except []string) string {
	var in, not keys
	if b.dst.IsValid() {
		in.add("to", []string{b.dst.String()})
	}
	if b.src.IsValid() {
		in.add("from", []string{b.src.String()})
	}
	var from, to []string
	for _, p := range b.notSrc {
		from = append(from, p.String())
	}
	for _, p := range b.notDst {
		to = append(to, p.String())
	}
	not.add("to", to)
	not.add("from", append(from, slices.DeleteFunc(slices.Clone(except), func(text string) bool { return strings.Contains(text, ":") != ipv6 })...))
	for f, values := range b.fields {
		if values != nil {
			key := packet.Field(f)
			words, negated := fieldWords(key, values)
			if negated {
				not.add(key.String(), words)
			} else {
				in.add(key.String(), words)
			}
		}
	}
	if len(not) > 0 {
		in = append(in, "not: {"+strings.Join(not, ", ")+"}")
	}
	return "{" + strings.Join(slices.Concat([]string{"name: " + name}, in, []string{"then: drop"}), ", ") + "}"
}

// fieldWords are the words of the policy for values of a field. Where the values include packets that do not have the field, as a port, the words
// are for the other values, and negated.
func fieldWords(f packet.Field, values []ranges.Range) (words []string, negated bool) {
	if f == packet.DPort || f == packet.SPort || f == packet.Flags || f == packet.ICMP {
		if contains(values, f.Size()-1) {
			values, negated = ranges.Complement(values, f.Size()), true
		}
	}
	switch f {
	case packet.DPort, packet.SPort:
		return portWords(values), negated
	case packet.Flags:
		return flagWords(values), negated
	case packet.ICMP:
		return messageWords(values), negated
	case packet.Fragment, packet.Family:
		for _, r := range values {
			for v := r.First; v <= r.Last; v++ {
				words = append(words, map[packet.Field][]string{packet.Fragment: {"none", "first", "later"}, packet.Family: {"ipv4", "ipv6"}}[f][v])
			}
		}
		return words, false
	case packet.Proto: // whose key takes no ranges
		for _, r := range values {
			for v := r.First; v <= r.Last; v++ {
				words = append(words, fmt.Sprint(v))
			}
		}
		return words, false
	}
	for _, r := range values {
		words = append(words, policy.Range(r).String())
	}
	return words, false
}

// portWords are values of packet.DPort, of TCP and UDP together where both have the same.
func portWords(values []ranges.Range) (words []string) {
	add := func(proto uint8, of []ranges.Range) {
		for _, r := range of {
			words = append(words, policy.Port{Proto: proto, First: uint16(r.First), Last: uint16(r.Last)}.String())
		}
	}
	tcp, udp := portsOfEach(values)
	if slices.Equal(tcp, udp) {
		add(0, tcp)
		return words
	}
	add(packet.ProtoTCP, tcp)
	add(packet.ProtoUDP, udp)
	return words
}

// portsOfEach are the ports of TCP and those of UDP among values of packet.DPort.
func portsOfEach(values []ranges.Range) (tcp, udp []ranges.Range) {
	split := func(first, last uint32) []ranges.Range {
		return ranges.Shift(ranges.Common(values, []ranges.Range{ranges.Span(first, last)}, packet.DPort.Size()), first)
	}
	return split(0, packet.PortUDP-1), split(packet.PortUDP, packet.PortNone-1)
}

func flagWords(values []ranges.Range) (words []string) {
	for _, c := range cubes(values) {
		if c.mask == 0 { // any flags: those with one of them, and those without
			return []string{policy.Flags{Value: 1, Mask: 1}.String(), policy.Flags{Mask: 1}.String()}
		}
		words = append(words, policy.Flags{Value: c.value, Mask: c.mask}.String())
	}
	return words
}

// messageWords are values of packet.ICMP: a type with all its codes where the values have all of them.
func messageWords(values []ranges.Range) (words []string) {
	for _, r := range values {
		for v := r.First; v <= r.Last; v++ {
			m := policy.ICMP{V6: v >= packet.ICMPv6, Type: uint8(v >> 8), Code: int(v & 255)}
			if v&255 == 0 && r.Last-v >= 255 {
				m.Code = -1
				v += 255
			}
			words = append(words, m.String())
		}
	}
	return words
}
