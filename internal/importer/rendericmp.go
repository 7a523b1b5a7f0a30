package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// messages writes ICMP messages. When they are most of the protocol's, it writes those that are not.
func (r *renderer) messages() {
	v := r.cond.field[packet.ICMP]
	if v == nil {
		return
	}
	if v.has(packet.ICMPNone) {
		r.keys.add(true, "icmp", messageWords(r.ofFamily(v.not(packet.ICMP))))
		return
	}
	if !r.cond.manyMessages() {
		r.keys.add(false, "icmp", messageWords(v))
		return
	}
	f, name := ipv4, "ipv4"
	if v[0].first >= packet.ICMPv6 {
		f, name = ipv6, "ipv6"
	}
	if r.proto == 0 {
		r.keys.add(false, "proto", []string{policyProtos[icmpProto(f)]})
	}
	if r.cond.field[packet.Family] == nil {
		r.keys.add(false, "family", []string{name})
	}
	r.keys.add(true, "icmp", messageWords(values{{icmpBase(f), icmpBase(f) + 0xffff}}.and(v.not(packet.ICMP))))
	if r.cond.field[packet.Fragment] == nil && !r.cond.whole {
		r.keys.add(true, "fragment", []string{"later"}) // which has no message to be told apart by
	}
}

// ofFamily is the messages of v that packets of the rule's family can be.
func (r *renderer) ofFamily(v values) values {
	switch f := r.cond.field[packet.Family]; {
	case f == nil:
		return v
	case f.has(packet.FamilyIPv4):
		return v.and(values{{0, packet.ICMPv6 - 1}})
	}
	return v.and(values{{packet.ICMPv6, packet.ICMPNone - 1}})
}

// messageWords names messages: types whole, or with their codes. Two types of the same name are one word.
func messageWords(v values) (list []string) {
	types := map[family]values{}
	for _, f := range []family{ipv4, ipv6} {
		prefix := policyProtos[icmpProto(f)]
		for kind := range uint32(256) {
			first := icmpBase(f) + kind<<8
			switch codes := v.and(values{{first, first + 255}}); {
			case len(codes) == 0:
			case codes.count() == 256:
				types[f] = types[f].or(only(kind))
				list = append(list, prefix+"/"+messageName(f, kind))
			default:
				for _, s := range codes {
					for c := s.first; c <= s.last; c++ {
						list = append(list, fmt.Sprintf("%s/%d/%d", prefix, kind, c&255))
					}
				}
			}
		}
	}
	return shareNames(list)
}

// messageName is the policy's name of a type, or its number.
func messageName(f family, kind uint32) string {
	for _, name := range policyMessages[f] {
		if icmpNames[f][name] == kind {
			return name
		}
	}
	return fmt.Sprint(kind)
}

// policyMessages are the names that the policy has for types.
var policyMessages = map[family][]string{
	ipv4: {
		"echo-reply", "destination-unreachable", "source-quench", "redirect", "echo-request", "router-advertisement",
		"router-solicitation", "time-exceeded", "parameter-problem", "timestamp-request", "timestamp-reply",
		"info-request", "info-reply", "address-mask-request", "address-mask-reply",
	},
	ipv6: {
		"destination-unreachable", "packet-too-big", "time-exceeded", "parameter-problem", "echo-request", "echo-reply",
		"mld-listener-query", "mld-listener-report", "mld-listener-done", "nd-router-solicit", "nd-router-advert",
		"nd-neighbor-solicit", "nd-neighbor-advert", "nd-redirect", "router-renumbering", "ind-neighbor-solicit",
		"ind-neighbor-advert", "mld2-listener-report",
	},
}

// shareNames drops the protocol from names that are of both families' messages and in the list for both, and from
// those that only one family has.
func shareNames(list []string) (out []string) {
	for _, w := range list {
		proto, name, _ := strings.Cut(w, "/")
		in4, in6 := slices.Contains(policyMessages[ipv4], name), slices.Contains(policyMessages[ipv6], name)
		switch {
		case in4 && in6 && slices.Contains(list, "icmp/"+name) && slices.Contains(list, "icmpv6/"+name):
			if proto == "icmp" {
				out = append(out, name)
			}
		case in4 != in6:
			out = append(out, name)
		default:
			out = append(out, w)
		}
	}
	return out
}
