// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// messages writes ICMP messages. If the rule has most of the protocol's messages, it writes the missing messages under `not`.
func (r *renderer) messages() {
	v := r.cond.Field[packet.ICMP]
	if v == nil {
		return
	}
	if v.Has(packet.ICMPNone) {
		r.keys.add(true, "icmp", messageWords(r.ofFamily(v.Not(packet.ICMP))))
		return
	}
	if !r.cond.ManyMessages() {
		r.keys.add(false, "icmp", messageWords(v))
		return
	}
	f, name := saved.IPv4, "ipv4"
	if v[0].First >= packet.ICMPv6 {
		f, name = saved.IPv6, "ipv6"
	}
	if r.proto == 0 {
		r.keys.add(false, "proto", []string{saved.PolicyProtos[saved.ICMPProto(f)]})
	}
	if r.cond.Field[packet.Family] == nil {
		r.keys.add(false, "family", []string{name})
	}
	r.keys.add(true, "icmp", messageWords(saved.Values{{First: saved.ICMPBase(f), Last: saved.ICMPBase(f) + 0xffff}}.And(v.Not(packet.ICMP))))
	if r.cond.Field[packet.Fragment] == nil && !r.cond.Whole {
		r.keys.add(true, "fragment", []string{"later"}) // a later fragment has no message type
	}
}

// ofFamily returns the messages of v that packets of the rule's family can have.
func (r *renderer) ofFamily(v saved.Values) saved.Values {
	switch f := r.cond.Field[packet.Family]; {
	case f == nil:
		return v
	case f.Has(packet.FamilyIPv4):
		return v.And(saved.Values{{First: 0, Last: packet.ICMPv6 - 1}})
	}
	return v.And(saved.Values{{First: packet.ICMPv6, Last: packet.ICMPNone - 1}})
}

// messageWords returns names for messages: whole types, or types with codes. Two types of the same name become one word.
func messageWords(v saved.Values) (list []string) {
	types := map[saved.Family]saved.Values{}
	for _, f := range []saved.Family{saved.IPv4, saved.IPv6} {
		prefix := saved.PolicyProtos[saved.ICMPProto(f)]
		for kind := range uint32(256) {
			first := saved.ICMPBase(f) + kind<<8
			switch codes := v.And(saved.Values{{First: first, Last: first + 255}}); {
			case len(codes) == 0:
			case codes.Count() == 256:
				types[f] = types[f].Or(saved.Only(kind))
				list = append(list, prefix+"/"+messageName(f, kind))
			default:
				for _, s := range codes {
					for c := s.First; c <= s.Last; c++ {
						list = append(list, fmt.Sprintf("%s/%d/%d", prefix, kind, c&255))
					}
				}
			}
		}
	}
	return shareNames(list)
}

// messageName returns the policy's name of a type, or its number.
func messageName(f saved.Family, kind uint32) string {
	for _, name := range policyMessages[f] {
		if saved.ICMPNames[f][name] == kind {
			return name
		}
	}
	return fmt.Sprint(kind)
}

// policyMessages are the policy's names of types.
var policyMessages = map[saved.Family][]string{
	saved.IPv4: {
		"echo-reply", "destination-unreachable", "source-quench", "redirect", "echo-request", "router-advertisement",
		"router-solicitation", "time-exceeded", "parameter-problem", "timestamp-request", "timestamp-reply",
		"info-request", "info-reply", "address-mask-request", "address-mask-reply",
	},
	saved.IPv6: {
		"destination-unreachable", "packet-too-big", "time-exceeded", "parameter-problem", "echo-request", "echo-reply",
		"mld-listener-query", "mld-listener-report", "mld-listener-done", "nd-router-solicit", "nd-router-advert",
		"nd-neighbor-solicit", "nd-neighbor-advert", "nd-redirect", "router-renumbering", "ind-neighbor-solicit",
		"ind-neighbor-advert", "mld2-listener-report",
	},
}

// shareNames removes the protocol from a name that is unambiguous without it. This is the case if only one family has the name, or if the list has
// the name for both families.
func shareNames(list []string) (out []string) {
	for _, w := range list {
		proto, name, _ := strings.Cut(w, "/")
		in4, in6 := slices.Contains(policyMessages[saved.IPv4], name), slices.Contains(policyMessages[saved.IPv6], name)
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
