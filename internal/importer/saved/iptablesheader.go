// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"net"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// ask narrows all alternatives by values of a field or, with not, by all other values.
func (r *iptablesRuleReader) ask(f packet.Field, v Values, not bool) {
	if not {
		v = v.Not(f)
	}
	r.each(func(c Cond) Cond { return c.With(f, v) })
}

// asks returns the reader of an option with values of a field. what names the option in messages.
func asks(f packet.Field, what string, parse func(text string) (Values, bool)) func(*iptablesRuleReader, bool, []string) {
	return func(r *iptablesRuleReader, not bool, args []string) {
		v, ok := parse(args[0])
		if !ok {
			r.unknown(what + " " + args[0])
			return
		}
		r.ask(f, v, not)
	}
}

// portList parses ports that are separated by commas, for the protocols of the rule.
func (r *iptablesRuleReader) portList(not bool, text, sep string) (Values, bool) {
	if len(r.protos) == 0 {
		return nil, false
	}
	var spans Values
	for word := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(word, sep)
		first, last := Span{}, Span{First: MaxPort, Last: MaxPort}
		ok1, ok2 := true, true
		if low != "" {
			first, ok1 = portNumber(low, r.protos[0])
		}
		if high != "" {
			last, ok2 = portNumber(high, r.protos[0])
		}
		if !ranged {
			last = first
		}
		if !ok1 || !ok2 || word == "" {
			return nil, false
		}
		if first.First <= last.Last { // otherwise the range is empty
			spans = append(spans, Span{First: first.First, Last: last.Last})
		}
	}
	list := Normalize(spans)
	if not {
		list = Values{{First: 0, Last: MaxPort}}.And(list.Not(packet.DPort))
	}
	return PortsIn(list, r.protos...)
}

// portNumber returns a port by its number or by its name in this host's services file or the list of values.go.
func portNumber(text string, proto uint32) (Span, bool) {
	if s, ok := PortSpan(text, "\x00"); ok {
		return s, true
	}
	n, err := net.LookupPort(policy.ProtocolName(uint8(proto)), text)
	return Span{First: uint32(n), Last: uint32(n)}, err == nil
}

// ports parses ports. A packet without ports, such as a later fragment, matches neither ports nor their negation.
func ports(f packet.Field, sep string) func(*iptablesRuleReader, bool, []string) {
	return func(r *iptablesRuleReader, not bool, args []string) {
		v, ok := r.portList(not, args[0], sep)
		if !ok {
			r.unknown("port " + args[0])
			return
		}
		r.each(func(c Cond) Cond { return c.With(f, v) })
	}
}

// eitherPort parses multiport's --ports, which match the source port or the destination port.
func (r *iptablesRuleReader) eitherPort(not bool, args []string) {
	v, ok := r.portList(not, args[0], ":")
	if !ok {
		r.unknown("port " + args[0])
		return
	}
	if not {
		r.each(func(c Cond) Cond { return c.With(packet.SPort, v).With(packet.DPort, v) })
		return
	}
	r.rule.Narrow([]Cond{Cond{}.With(packet.DPort, v), Cond{}.With(packet.SPort, v)})
}

func (r *iptablesRuleReader) tcpFlags(not bool, args []string) {
	mask, ok1 := FlagBits(args[0])
	value, ok2 := FlagBits(args[1])
	if !ok1 || !ok2 {
		r.unknown("TCP flags " + strings.Join(args, " "))
		return
	}
	v := FlagsWhere(func(f uint32) bool { return f&mask == value != not })
	r.each(func(c Cond) Cond { return c.With(packet.Flags, v) })
}

// icmpType parses a type, a type and a code, or any.
func (r *iptablesRuleReader) icmpType(not bool, args []string) {
	base := ICMPBase(r.file.family)
	all := Values{{First: base, Last: base + 0xffff}}
	v, ok := icmpMessages(r.file.family, args[0])
	if !ok {
		r.unknown("ICMP type " + args[0])
		return
	}
	if not {
		v = all.And(v.Not(packet.ICMP))
	}
	r.each(func(c Cond) Cond { return c.With(packet.ICMP, v) })
}

// icmpMessages returns the messages that TYPE, TYPE/CODE, a name, or any mean.
func icmpMessages(f Family, text string) (Values, bool) {
	base := ICMPBase(f)
	if text == "any" || text == "255" && f == IPv4 {
		return Values{{First: base, Last: base + 0xffff}}, true
	}
	kind, code, hasCode := strings.Cut(text, "/")
	t, ok := ICMPNames[f][kind]
	if !ok {
		if t, ok = Number(kind, 255); !ok {
			return nil, false
		}
	}
	first := base + t<<8
	if !hasCode {
		return Values{{First: first, Last: first | 0xff}}, true
	}
	c, ok := Number(code, 255)
	return Only(first | c), ok
}

// state parses states of connection tracking, which include DNAT and SNAT.
func (r *iptablesRuleReader) state(not bool, args []string) {
	v, translated := Values{}, false
	for name := range strings.SplitSeq(strings.ToLower(args[0]), ",") {
		n, ok := StateNames[name]
		switch {
		case name == "dnat":
			translated = true
		case !ok:
			r.unknown("state " + args[0])
			return
		default:
			v = v.Or(Only(n))
		}
	}
	if not {
		v = v.Not(packet.State)
	}
	switch {
	case translated && not:
		r.unknown("state " + args[0])
	case translated && !not:
		r.rule.Narrow([]Cond{Cond{}.With(packet.State, v), {DNAT: true}})
	default:
		r.each(func(c Cond) Cond { return c.With(packet.State, v) })
	}
}

// spanOf parses a number or a range FIRST:LAST of a field.
func spanOf(f packet.Field, limit uint64) func(*iptablesRuleReader, bool, []string) {
	return asks(f, f.String(), func(text string) (Values, bool) {
		s, ok := NumberSpan(text, ":", limit)
		return Values{s}, ok
	})
}

// segmentSize parses a value or a range of values of the MSS option. Segments without the option match the negation.
func (r *iptablesRuleReader) segmentSize(not bool, args []string) {
	s, ok := NumberSpan(args[0], ":", MaxMSS)
	if !ok || len(r.protos) != 1 || r.protos[0] != ProtoTCP {
		r.unknown("MSS " + args[0])
		return
	}
	r.ask(packet.MSS, Values{s}, not)
}

// class parses a DSCP name.
func class(text string) (Values, bool) {
	n, ok := DSCPNumbers[strings.ToLower(text)]
	return Only(n), ok
}

// tosNames are the names of the old type of service (RFC 1349).
var tosNames = map[string]string{
	"minimize-delay": "0x10/0x3f", "maximize-throughput": "0x08/0x3f", "maximize-reliability": "0x04/0x3f",
	"minimize-cost": "0x02/0x3f", "normal-service": "0x00/0x3f",
}

// tos parses VALUE[/MASK] of the byte whose upper six bits are the DSCP. The policy cannot test the other two bits.
func (r *iptablesRuleReader) tos(not bool, args []string) {
	text := args[0]
	if name, ok := tosNames[strings.ToLower(text)]; ok {
		text = name
	}
	value, masked, hasMask := strings.Cut(text, "/")
	n, ok := Number(value, 255)
	mask := uint32(255)
	if hasMask && ok {
		mask, ok = Number(masked, 255)
	}
	if !ok || mask&3 != 0 {
		r.unknown("-m tos, of bits that are not the DSCP")
		return
	}
	v := Values{}
	for d := range uint32(64) {
		if d<<2&mask == n {
			v = append(v, Span{First: d, Last: d})
		}
	}
	r.ask(packet.DSCP, Normalize(v), not)
}

// mark parses VALUE[/MASK] of a packet's mark, or of its connection's mark.
func mark(of string) func(*iptablesRuleReader, bool, []string) {
	return func(r *iptablesRuleReader, not bool, args []string) {
		value, masked, hasMask := strings.Cut(args[0], "/")
		n, ok := Number(value, 1<<32-1)
		mask := ^uint32(0)
		if hasMask && ok {
			mask, ok = Number(masked, 1<<32-1)
		}
		if !ok {
			r.unknown(of + " " + args[0])
			return
		}
		r.each(func(c Cond) Cond {
			c.Marks = append(slices.Clip(c.Marks), MarkTest{Of: of, Value: n, Mask: mask, Not: not})
			return c
		})
	}
}

func above(n uint32) Values {
	if n >= 255 {
		return Values{}
	}
	return Values{{First: n + 1, Last: 255}}
}

func hops(of func(uint32) Values) func(*iptablesRuleReader, bool, []string) {
	return asks(packet.TTL, "ttl", func(text string) (Values, bool) {
		n, ok := Number(text, 255)
		return of(n), ok
	})
}
