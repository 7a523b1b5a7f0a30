// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// ParseRule parses a rule outside of a policy, in one line as it stands under rules: {name: flood, proto: udp, then: drop}. It knows no set.
func ParseRule(line string) (*Rule, error) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
	if strings.ContainsAny(line, "\r\n") || !strings.HasPrefix(line, "{") {
		return nil, errors.New("is not a rule in one line")
	}
	p, err := Parse("rule", []byte("devices: [any]\ndefault: pass\nchecks: off\nrules:\n  - "+line+"\n"))
	if err != nil {
		return nil, err
	}
	if len(p.Rules) != 1 {
		return nil, errors.New("is not one rule")
	}
	return &p.Rules[0], nil
}

// Line returns the rule in one line, as ParseRule parses it. It has the keys that Words has, and `not`, `observe` and `then`.
func (r *Rule) Line() string {
	keys := append([]string{"name: " + r.Name}, r.Match.Words()...)
	if not := r.Not.Words(); not != nil {
		keys = append(keys, "not: {"+strings.Join(not, ", ")+"}")
	}
	if r.Observe {
		keys = append(keys, "observe: true")
	}
	return "{" + strings.Join(append(keys, "then: "+r.Then.String()), ", ") + "}"
}

// Words returns the keys of a match with their values, as KEY: VALUE. It leaves out mss, vlan, state, and payload: {contains: …}.
func (m *Match) Words() (list []string) {
	add := func(key string, words []string) {
		if len(words) > 0 {
			list = append(list, key+": "+listText(words))
		}
	}
	add("family", texts(m.Family, func(v uint32) string { return familyWord(uint8(v)) }))
	add("from", texts(m.From, addrText))
	add("to", texts(m.To, addrText))
	add("proto", texts(m.Proto, ProtocolName))
	add("fragment", texts(m.Fragment, func(v uint32) string { return fragmentWord(uint8(v)) }))
	add("sport", texts(m.SPort, Port.String))
	add("port", texts(m.Port, Port.String))
	add("flags", texts(m.Flags, func(f Flags) string { return fmt.Sprintf("%q", f) }))
	add("icmp", texts(m.ICMP, ICMP.String))
	add("length", texts(m.Length, Range.String))
	add("ttl", texts(m.TTL, Range.String))
	add("dscp", texts(m.DSCP, Range.String))
	if m.DNS != nil {
		list = append(list, "dns: "+m.DNS.text())
	}
	if m.Payload != nil {
		add("payload", []string{"{at: " + listText(texts(m.Payload.At, At.text)) + "}"})
	}
	return list
}

func texts[T any](values []T, text func(T) string) (list []string) {
	for _, v := range values {
		list = append(list, text(v))
	}
	return list
}

// listText returns a single word, or a list in brackets.
func listText(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// addrText returns an address as YAML. It quotes an address that ends in a colon, because YAML would take the colon for the end of a key.
func addrText(a Addr) string {
	if text := a.String(); !strings.HasSuffix(text, ":") {
		return text
	}
	return fmt.Sprintf("%q", a)
}

func (d *DNS) text() string {
	var keys []string
	if d.Types != nil {
		keys = append(keys, "type: "+listText(texts(d.Types, func(r Range) string {
			if r.First == r.Last {
				return packet.DNSTypeText(uint16(r.First))
			}
			return r.String()
		})))
	}
	if d.Names != nil {
		keys = append(keys, "name: "+listText(texts(d.Names, func(n DNSName) string { return fmt.Sprintf("%q", n.Name) })))
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

func (a At) text() string {
	text := fmt.Sprintf("offset: %d, bytes: %q", a.Offset, packet.ContentText(a.Value))
	if len(bytes.Trim(a.Mask, "\xff")) > 0 {
		text += fmt.Sprintf(", mask: %q", packet.ContentText(a.Mask))
	}
	if a.Header {
		text += ", from: header"
	}
	return "{" + text + "}"
}

// Ask sets the key of a field, other than flags, to values of packet.Packet.Value. A packet that lacks the field, such as a port, then does not
// match.
func (m *Match) Ask(f packet.Field, values []ranges.Range) {
	switch f {
	case packet.DPort:
		m.Port = portsOf(values)
	case packet.SPort:
		m.SPort = portsOf(values)
	case packet.ICMP:
		m.ICMP = messagesOf(values)
	case packet.Family:
		m.Family = singles[uint32](values)
	case packet.Fragment:
		m.Fragment = singles[uint32](values)
	case packet.Proto:
		m.Proto = singles[uint8](values)
	case packet.Length:
		m.Length = rangesOf(values)
	case packet.TTL:
		m.TTL = rangesOf(values)
	case packet.DSCP:
		m.DSCP = rangesOf(values)
	}
}

func rangesOf(values []ranges.Range) (list []Range) {
	for _, r := range values {
		list = append(list, Range(r))
	}
	return list
}

// singles returns each value of the ranges, for keys that take no ranges.
func singles[T uint8 | uint32](values []ranges.Range) (list []T) {
	for _, r := range values {
		for v := r.First; v <= r.Last; v++ {
			list = append(list, T(v))
		}
	}
	return list
}

// portsOf converts values of packet.DPort to ports. TCP and UDP share one entry if both have the same ports.
func portsOf(values []ranges.Range) (list []Port) {
	add := func(proto uint8, of []ranges.Range) {
		for _, r := range of {
			list = append(list, Port{Proto: proto, First: uint16(r.First), Last: uint16(r.Last)})
		}
	}
	of := func(first, last uint32) []ranges.Range {
		return ranges.Shift(ranges.Common(values, []ranges.Range{ranges.Span(first, last)}, packet.DPort.Size()), first)
	}
	tcp, udp := of(0, packet.PortUDP-1), of(packet.PortUDP, packet.PortNone-1)
	if slices.Equal(tcp, udp) {
		add(0, tcp)
		return list
	}
	add(protoTCP, tcp)
	add(protoUDP, udp)
	return list
}

// messagesOf converts values of packet.ICMP to messages. A type becomes one message if the values have all its codes.
func messagesOf(values []ranges.Range) (list []ICMP) {
	for _, r := range values {
		for v := r.First; v <= r.Last; v++ {
			m := ICMP{V6: v >= packet.ICMPv6, Type: uint8(v >> 8), Code: int(v & 255)}
			if v&255 == 0 && r.Last-v >= 255 {
				m.Code = -1
				v += 255
			}
			list = append(list, m)
		}
	}
	return list
}
