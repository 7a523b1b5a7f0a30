package suggest

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// test is one key of a rule: what it asks for, and whether a packet has it.
type test struct {
	key   string // of the policy; "payload.at", "dns.type" and "dns.name" are parts of a key
	value string // as a policy has it
	has   func(s *Sample) bool
}

// valuesTest asks for values of a field.
func valuesTest(f packet.Field, values []ir.Range) test {
	m := ir.Match{Field: f, Values: values}
	return test{key: f.String(), value: valuesText(f, values), has: func(s *Sample) bool { return m.Has(s.Value[f]) }}
}

// exactly asks for one value of a field.
func exactly(f packet.Field, v uint32) test { return valuesTest(f, []ir.Range{{First: v, Last: v}}) }

// valuesText writes values as the policy does: one, or a list.
func valuesText(f packet.Field, values []ir.Range) string {
	words := make([]string, len(values))
	for i, r := range values {
		words[i] = valueText(f, r)
	}
	return listText(words)
}

func listText(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// ValueText writes a value of a field as the policy does; "none" says that a packet does not have the field.
func ValueText(f packet.Field, v uint32) string {
	switch {
	case f == packet.Flags && v == packet.FlagsNone, (f == packet.DPort || f == packet.SPort) && v == packet.PortNone,
		f == packet.ICMP && v == packet.ICMPNone:
		return "none"
	case f == packet.Flags:
		value, _, _ := strings.Cut(policy.Flags{Value: uint8(v)}.String(), "/")
		return value
	}
	return valueText(f, ir.Range{First: v, Last: v})
}

func valueText(f packet.Field, r ir.Range) string {
	switch f {
	case packet.DPort, packet.SPort:
		p := policy.Port{Proto: packet.ProtoTCP, First: uint16(r.First), Last: uint16(r.Last)}
		if r.First >= packet.PortUDP {
			p = policy.Port{Proto: packet.ProtoUDP, First: uint16(r.First - packet.PortUDP), Last: uint16(r.Last - packet.PortUDP)}
		}
		return p.String()
	case packet.ICMP:
		return policy.ICMP{V6: r.First >= packet.ICMPv6, Type: uint8(r.First >> 8), Code: int(r.First & 0xff)}.String()
	case packet.Family:
		return [...]string{"ipv4", "ipv6"}[r.First]
	case packet.Fragment:
		return [...]string{"none", "first", "later"}[r.First]
	case packet.Proto:
		return policy.ProtocolName(uint8(r.First))
	}
	return policy.Range(r).String()
}

// flagsMask are the TCP flags that are compared: those of congestion control vary with the path, and iptables has no match for them.
const flagsMask = 0x3f

// flagsTest asks for exactly these of the compared flags.
func flagsTest(flags uint32) test {
	word := policy.Flags{Value: uint8(flags & flagsMask), Mask: flagsMask}.String()
	return test{"flags", fmt.Sprintf("%q", word), func(s *Sample) bool {
		return s.Value[packet.Flags] != packet.FlagsNone && s.Value[packet.Flags]&flagsMask == flags&flagsMask
	}}
}

// prefixTest asks for a source or destination in any of some prefixes.
func prefixTest(key string, prefixes []netip.Prefix) test {
	words := make([]string, len(prefixes))
	for i, p := range prefixes {
		words[i] = p.String()
		if p.IsSingleIP() {
			words[i] = p.Addr().String()
		}
	}
	return test{key, listText(words), func(s *Sample) bool {
		a := s.address(key)
		return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	}}
}

// address is the source for the key from, and the destination for to.
func (s *Sample) address(key string) netip.Addr {
	if key == "to" {
		return s.Dst
	}
	return s.Src
}

// bytesTest asks for bytes at a place of the payload, or of the L4 header.
func bytesTest(header bool, offset int, value []byte) test {
	from := ""
	if header {
		from = ", from: header"
	}
	return test{"payload.at", fmt.Sprintf("{offset: %d, bytes: %q%s}", offset, packet.ContentText(value), from), func(s *Sample) bool {
		return bytes.HasPrefix(s.bytes(header, offset), value)
	}}
}

// bytes are those that were captured from a place on.
func (s *Sample) bytes(header bool, offset int) []byte {
	b := s.L4[:min(s.seen, len(s.L4))]
	if !header {
		before := len(s.L4) - len(s.Payload)
		if s.Payload == nil || len(b) < before {
			return nil
		}
		b = b[before:]
	}
	if offset > len(b) {
		return nil
	}
	return b[offset:]
}

// dnsPort is the port of DNS: elsewhere, what looks like a DNS message need not be one.
const dnsPort = packet.PortUDP + 53

// nameTest asks for a DNS query for a name or one below it.
func nameTest(name string) test {
	set := ir.NameSet{Names: []string{name}}
	return test{"dns.name", fmt.Sprintf("%q", name), func(s *Sample) bool { return isQuery(s) && set.Has(s.name) }}
}

// typeTest asks for a DNS query of a type.
func typeTest(kind uint32) test {
	return test{"dns.type", packet.DNSTypeText(uint16(kind)), func(s *Sample) bool { return isQuery(s) && s.Value[packet.DNS] == kind }}
}

func isQuery(s *Sample) bool {
	return s.Value[packet.DPort] == dnsPort && s.Value[packet.DNS] < packet.DNSResponse
}
