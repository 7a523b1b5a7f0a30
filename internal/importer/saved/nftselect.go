// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// selector is the part of a packet that an expression of nft reads.
type selector struct {
	field  packet.Field
	kind   kind
	domain Values // the possible values in packets that have the field; nil means all values
	shift  uint32 // number that is added to nft's values to get the field's values
	code   bool   // only for messages: the selector reads the code, not the type
	both   bool   // only for ports: the selector reads ports of both TCP and UDP
	flags  bool   // the field is tested bit by bit
	mask   uint32 // mask of the flags
	given  Cond   // the condition that a packet must meet to have the field

	side    func(Cond, AddrTest) Cond // adds a test of an address to a Cond; for addresses, instead of a field
	device  bool                      // it reads the device
	leaves  bool                      // only for a device: the selector reads the outgoing device
	kinds   bool                      // it reads the type of the address, as fib determines it
	routing bool                      // it reads the type of a routing header
	status  bool                      // it reads the status of the connection (ct status)
	bytes   *raw                      // it reads raw payload
	unknown string                    // the name of the expression if the policy cannot test it
}

func fieldOf(f packet.Field, k kind) selector { return selector{field: f, kind: k} }

// addressOf returns a selector for an address of one family.
func addressOf(f uint32, side func(Cond, AddrTest) Cond) selector {
	return selector{side: side, given: Cond{}.With(packet.Family, Only(f))}
}

// inFamily returns s for packets of one family.
func (s selector) inFamily(f uint32) selector {
	s.given = s.given.With(packet.Family, Only(f))
	return s
}

// headerFamilies are the families of the headers that exist in only one family.
var headerFamilies = map[any]uint32{"ip": packet.FamilyIPv4, "icmp": packet.FamilyIPv4, "igmp": packet.FamilyIPv4,
	"ip6": packet.FamilyIPv6, "icmpv6": packet.FamilyIPv6}

// ofHeader returns s. If the policy cannot test the field, s is limited to packets of the header's family, which is
// known.
func (s selector) ofHeader(protocol any) selector {
	if family, ok := headerFamilies[protocol]; ok && s.unknown != "" {
		return s.inFamily(family)
	}
	return s
}

func portOf(f packet.Field, protos ...uint32) selector {
	all, _ := PortsIn(TCPPorts, protos...)
	s := selector{field: f, kind: portKind, domain: all, both: len(protos) > 1}
	if len(protos) == 1 && protos[0] == ProtoUDP {
		s.shift = packet.PortUDP
	}
	return s
}

func typeOf(f Family) selector {
	base := ICMPBase(f)
	return selector{field: packet.ICMP, shift: base, domain: Values{{First: base, Last: base + 0xffff}}, kind: named(255, ICMPNames[f])}
}

func codeOf(f Family) selector {
	s := typeOf(f)
	s.kind, s.code = named(255, ICMPCodes[f]), true
	return s
}

// messages returns the messages whose type, or code, is in v.
func (s selector) messages(v Values) Values {
	out := Values{}
	for _, w := range v {
		if !s.code {
			out = append(out, Span{First: s.shift + w.First<<8, Last: s.shift + w.Last<<8 + 255})
			continue
		}
		for kind := range uint32(256) {
			out = append(out, Span{First: s.shift + kind<<8 + w.First, Last: s.shift + kind<<8 + w.Last})
		}
	}
	return Normalize(out)
}

// looking returns s with a remark about how its values differ from those of the policy's key.
func (s selector) looking(how string) selector {
	s.given = s.given.Narrowed(how)
	return s
}

// payloads are the header fields with an equivalent in the policy, by protocol and name.
var payloads = map[string]selector{
	"ip saddr": addressOf(packet.FamilyIPv4, Cond.From), "ip daddr": addressOf(packet.FamilyIPv4, Cond.To),
	"ip6 saddr": addressOf(packet.FamilyIPv6, Cond.From), "ip6 daddr": addressOf(packet.FamilyIPv6, Cond.To),
	"ip protocol":  fieldOf(packet.Proto, protoKind).inFamily(packet.FamilyIPv4),
	"ip6 nexthdr":  fieldOf(packet.Proto, protoKind).inFamily(packet.FamilyIPv6).looking(FirstHeader),
	"ip ttl":       fieldOf(packet.TTL, byteKind).inFamily(packet.FamilyIPv4),
	"ip6 hoplimit": fieldOf(packet.TTL, byteKind).inFamily(packet.FamilyIPv6),
	"ip dscp":      fieldOf(packet.DSCP, dscpKind).inFamily(packet.FamilyIPv4),
	"ip6 dscp":     fieldOf(packet.DSCP, dscpKind).inFamily(packet.FamilyIPv6),
	"ip length":    fieldOf(packet.Length, lengthKind).inFamily(packet.FamilyIPv4),
	"ip version":   fieldOf(packet.Family, named(15, nil)).unsupported("ip version"),
	"tcp dport":    portOf(packet.DPort, ProtoTCP), "tcp sport": portOf(packet.SPort, ProtoTCP),
	"udp dport": portOf(packet.DPort, ProtoUDP), "udp sport": portOf(packet.SPort, ProtoUDP),
	"th dport": portOf(packet.DPort, ProtoTCP, ProtoUDP), "th sport": portOf(packet.SPort, ProtoTCP, ProtoUDP),
	"tcp flags":   {field: packet.Flags, kind: flagKind, domain: Values{{First: 0, Last: packet.FlagsNone - 1}}, flags: true, mask: 255},
	"icmp type":   typeOf(IPv4),
	"icmp code":   codeOf(IPv4),
	"icmpv6 type": typeOf(IPv6),
	"icmpv6 code": codeOf(IPv6),
	"ether type":  fieldOf(packet.Family, familyKind),
}

// metas are the meta keys with an equivalent in the policy.
var metas = map[string]selector{
	"l4proto": fieldOf(packet.Proto, protoKind), "nfproto": fieldOf(packet.Family, familyKind),
	"protocol": fieldOf(packet.Family, familyKind), "length": fieldOf(packet.Length, lengthKind),
	"iifname": {device: true}, "iif": {device: true}, "oifname": {device: true, leaves: true}, "oif": {device: true, leaves: true},
}

func (s selector) unsupported(what string) selector { return selector{unknown: what} }

// selectorOf reads the left side of a match, or the key of a map.
func selectorOf(v any) selector {
	if p, ok := member(v, "payload").(map[string]any); ok {
		if p["protocol"] == nil {
			return rawSelector(v)
		}
		return knownOr(payloads, fmt.Sprintf("%v %v", p["protocol"], p["field"])).ofHeader(p["protocol"])
	}
	if o, ok := member(v, "tcp option").(map[string]any); ok && o["name"] == "maxseg" && (o["field"] == "size" || o["field"] == nil) {
		return segmentSize(o["field"] == nil)
	}
	if e, ok := member(v, "exthdr").(map[string]any); ok && e["name"] == "frag" && e["field"] == "frag-off" {
		s := selector{field: packet.Fragment, kind: firstKind, domain: Only(packet.FragmentFirst, packet.FragmentLater)}
		return s.inFamily(packet.FamilyIPv6)
	}
	if e, ok := member(v, "exthdr").(map[string]any); ok && e["name"] == "rt" && e["field"] == "type" {
		return selector{routing: true}.inFamily(packet.FamilyIPv6)
	}
	if m, ok := member(v, "meta").(map[string]any); ok {
		return knownOr(metas, fmt.Sprint(m["key"])).orMeta(m["key"])
	}
	if c, ok := member(v, "ct").(map[string]any); ok {
		if c["key"] == "state" {
			return selector{field: packet.State, kind: stateKind}
		}
		if c["key"] == "status" {
			return selector{status: true}
		}
		return selector{unknown: fmt.Sprintf("ct %v", c["key"])}
	}
	if f, ok := member(v, "fib").(map[string]any); ok {
		return fibSelector(f)
	}
	if and, ok := member(v, "&").([]any); ok && len(and) == 2 {
		return masked(selectorOf(and[0]), and)
	}
	return selector{unknown: compact(v)}
}

func knownOr(known map[string]selector, name string) selector {
	if s, ok := known[name]; ok {
		return s
	}
	return selector{unknown: name}
}

// orMeta adds the keyword meta to the name of a key that has no equal.
func (s selector) orMeta(key any) selector {
	if s.unknown != "" {
		s.unknown = fmt.Sprintf("meta %v", key)
	}
	return s
}

// segmentSize reads the value of the MSS option, or, with presence, whether there is such an option. A segment without
// the option matches no comparison of the value.
func segmentSize(presence bool) selector {
	s := selector{field: packet.MSS, kind: named(MaxMSS, nil), domain: Values{{First: 0, Last: MaxMSS}}}
	if presence {
		s.kind, s.domain = nil, nil
	}
	return s
}

// fibSelector reads the type of an address according to the routing table.
func fibSelector(f map[string]any) selector {
	flags := listOrOne(f["flags"])
	if f["result"] == "type" && len(flags) == 1 {
		switch flags[0] {
		case "saddr":
			return selector{kinds: true, side: Cond.From}
		case "daddr":
			return selector{kinds: true, side: Cond.To}
		}
	}
	return selector{unknown: fmt.Sprintf("fib %v", f["result"])}
}

// offsetMask is the mask of the fragment offset, without the flags, in bytes 6 and 7 of an IPv4 header (RFC 791, 3.1).
const offsetMask = 0x1fff

// masked reads FIELD & MASK.
func masked(s selector, and []any) selector {
	p, _ := member(and[0], "payload").(map[string]any)
	mask, isNumber := byteMask(and[1])
	switch {
	case s.bytes != nil:
		return s.masked(and[1])
	case s.flags:
		bits, ok := flagKind.bits(and[1])
		if !ok {
			return selector{unknown: compact(and[1])}
		}
		s.mask = bits
		return s
	case isNumber && mask == offsetMask && p["protocol"] == "ip" && p["field"] == "frag-off":
		fragments := selector{field: packet.Fragment, kind: laterKind}
		return fragments.inFamily(packet.FamilyIPv4)
	}
	return selector{unknown: expression(map[string]any{"&": and})}.ofHeader(p["protocol"])
}

func byteMask(v any) (uint32, bool) {
	f, ok := v.(float64)
	return uint32(f), ok
}

// firstKind reads the value with which the offset in a fragment header is compared. Only 0 is supported: it means a first fragment.
func firstKind(v any) (uint32, bool) {
	n, ok := v.(float64)
	return packet.FragmentFirst, ok && n == 0
}

// laterKind reads the value with which a fragment offset is compared. Only 0 is supported: it means packets that are no later fragment.
func laterKind(v any) (uint32, bool) {
	n, ok := v.(float64)
	return 0, ok && n == 0
}
