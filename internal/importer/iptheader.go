package importer

import (
	"net"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// fragment reads -f, which is all fragments but the first.
func (r *ruleReader) fragment(not bool, _ []string) {
	v := only(packet.FragmentLater)
	if not {
		v = v.not(packet.Fragment)
	}
	r.each(func(c cond) cond { return c.with(packet.Fragment, v) })
}

// portList reads ports with commas between them, for the protocols of the rule.
func (r *ruleReader) portList(not bool, text, sep string) (values, bool) {
	if len(r.protos) == 0 {
		return nil, false
	}
	var spans values
	for word := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(word, sep)
		first, last := span{}, span{maxPort, maxPort}
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
		if first.first <= last.last { // the other way round no port is between them
			spans = append(spans, span{first.first, last.last})
		}
	}
	list := normalize(spans)
	if not {
		list = values{{0, maxPort}}.and(list.not(packet.DPort))
	}
	return portsIn(list, r.protos...)
}

// portNumber is a port by its number or by its name, as this host's services file or the list of values.go has it.
func portNumber(text string, proto uint32) (span, bool) {
	if s, ok := portSpan(text, "\x00"); ok {
		return s, true
	}
	n, err := net.LookupPort(policyProtos[proto], text)
	return span{uint32(n), uint32(n)}, err == nil
}

// ports reads ports. A packet without ports, as a later fragment, matches neither them nor their negation.
func ports(f packet.Field, sep string) func(*ruleReader, bool, []string) {
	return func(r *ruleReader, not bool, args []string) {
		v, ok := r.portList(not, args[0], sep)
		if !ok {
			r.unknown("port " + args[0])
			return
		}
		r.each(func(c cond) cond { return c.with(f, v) })
	}
}

// eitherPort reads multiport's --ports: the source's or the destination's.
func (r *ruleReader) eitherPort(not bool, args []string) {
	v, ok := r.portList(not, args[0], ":")
	if !ok {
		r.unknown("port " + args[0])
		return
	}
	if not {
		r.each(func(c cond) cond { return c.with(packet.SPort, v).with(packet.DPort, v) })
		return
	}
	r.multiply([]cond{cond{}.with(packet.DPort, v), cond{}.with(packet.SPort, v)})
}

func (r *ruleReader) tcpFlags(not bool, args []string) {
	mask, ok1 := flagBits(args[0])
	value, ok2 := flagBits(args[1])
	if !ok1 || !ok2 {
		r.unknown("TCP flags " + strings.Join(args, " "))
		return
	}
	v := flagsWhere(func(f uint32) bool { return f&mask == value != not })
	r.each(func(c cond) cond { return c.with(packet.Flags, v) })
}

// icmpType reads a type, a type and a code, or any.
func (r *ruleReader) icmpType(not bool, args []string) {
	base := icmpBase(r.file.family)
	all := values{{base, base + 0xffff}}
	v, ok := icmpMessages(r.file.family, args[0])
	if !ok {
		r.unknown("ICMP type " + args[0])
		return
	}
	if not {
		v = all.and(v.not(packet.ICMP))
	}
	r.each(func(c cond) cond { return c.with(packet.ICMP, v) })
}

// icmpMessages are the messages that TYPE, TYPE/CODE, a name, or any mean.
func icmpMessages(f family, text string) (values, bool) {
	base := icmpBase(f)
	if text == "any" || text == "255" && f == ipv4 {
		return values{{base, base + 0xffff}}, true
	}
	kind, code, hasCode := strings.Cut(text, "/")
	t, ok := icmpNames[f][kind]
	if !ok {
		if t, ok = number(kind, 255); !ok {
			return nil, false
		}
	}
	first := base + t<<8
	if !hasCode {
		return values{{first, first | 0xff}}, true
	}
	c, ok := number(code, 255)
	return only(first | c), ok
}

// state reads states of connection tracking, among which are DNAT and SNAT.
func (r *ruleReader) state(not bool, args []string) {
	v, translated := values{}, false
	for name := range strings.SplitSeq(strings.ToLower(args[0]), ",") {
		n, ok := stateNames[name]
		switch {
		case name == "dnat":
			translated = true
		case !ok:
			r.unknown("state " + args[0])
			return
		default:
			v = v.or(only(n))
		}
	}
	if not {
		v = v.not(packet.State)
	}
	switch {
	case translated && not:
		r.unknown("state " + args[0])
	case translated && !not:
		r.multiply([]cond{cond{}.with(packet.State, v), {dnat: true}})
	default:
		r.each(func(c cond) cond { return c.with(packet.State, v) })
	}
}

// spanOf reads a number or a range FIRST:LAST of a field.
func spanOf(f packet.Field, limit uint64) func(*ruleReader, bool, []string) {
	return func(r *ruleReader, not bool, args []string) {
		s, ok := numberSpan(args[0], ":", limit)
		if !ok {
			r.unknown(f.String() + " " + args[0])
			return
		}
		v := values{s}
		if not {
			v = v.not(f)
		}
		r.each(func(c cond) cond { return c.with(f, v) })
	}
}

// class reads a DSCP by its name.
func (r *ruleReader) class(not bool, args []string) {
	n, ok := dscpNumbers[strings.ToLower(args[0])]
	if !ok {
		r.unknown("DSCP class " + args[0])
		return
	}
	v := only(n)
	if not {
		v = v.not(packet.DSCP)
	}
	r.each(func(c cond) cond { return c.with(packet.DSCP, v) })
}

// tosNames are the names of the old type of service (RFC 1349).
var tosNames = map[string]string{
	"minimize-delay": "0x10/0x3f", "maximize-throughput": "0x08/0x3f", "maximize-reliability": "0x04/0x3f",
	"minimize-cost": "0x02/0x3f", "normal-service": "0x00/0x3f",
}

// tos reads VALUE[/MASK] of the octet whose upper six bits are the DSCP. The policy reads no others of it.
func (r *ruleReader) tos(not bool, args []string) {
	text := args[0]
	if name, ok := tosNames[strings.ToLower(text)]; ok {
		text = name
	}
	value, masked, hasMask := strings.Cut(text, "/")
	n, ok := number(value, 255)
	mask := uint32(255)
	if hasMask && ok {
		mask, ok = number(masked, 255)
	}
	if !ok || mask&3 != 0 {
		r.unknown("-m tos, of bits that are not the DSCP")
		return
	}
	v := values{}
	for d := range uint32(64) {
		if d<<2&mask == n {
			v = append(v, span{d, d})
		}
	}
	v = normalize(v)
	if not {
		v = v.not(packet.DSCP)
	}
	r.each(func(c cond) cond { return c.with(packet.DSCP, v) })
}

// mark reads VALUE[/MASK] of a packet's mark, or its connection's.
func mark(of string) func(*ruleReader, bool, []string) {
	return func(r *ruleReader, not bool, args []string) {
		value, masked, hasMask := strings.Cut(args[0], "/")
		n, ok := number(value, 1<<32-1)
		mask := ^uint32(0)
		if hasMask && ok {
			mask, ok = number(masked, 1<<32-1)
		}
		if !ok {
			r.unknown(of + " " + args[0])
			return
		}
		r.each(func(c cond) cond {
			c.marks = append(slices.Clip(c.marks), markTest{of: of, value: n, mask: mask, not: not})
			return c
		})
	}
}

func below(n uint32) values {
	if n == 0 {
		return values{}
	}
	return values{{0, n - 1}}
}

func above(n uint32) values {
	if n >= 255 {
		return values{}
	}
	return values{{n + 1, 255}}
}

func hops(of func(uint32) values) func(*ruleReader, bool, []string) {
	return func(r *ruleReader, _ bool, args []string) {
		n, ok := number(args[0], 255)
		if !ok {
			r.unknown("ttl " + args[0])
			return
		}
		r.each(func(c cond) cond { return c.with(packet.TTL, of(n)) })
	}
}
