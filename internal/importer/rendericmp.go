// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// messages writes ICMP messages. If the rule has most of the protocol's messages, it writes the missing messages under `not`.
func (r *renderer) messages() {
	v := r.cond.Field[packet.ICMP]
	if v == nil {
		return
	}
	if v.Has(packet.ICMPNone) {
		r.keys.add(true, "icmp", policy.MessageWords(r.ofFamily(v.Not(packet.ICMP))))
		return
	}
	if !r.cond.ManyMessages() {
		r.keys.add(false, "icmp", policy.MessageWords(v))
		return
	}
	f, name := saved.IPv4, "ipv4"
	if v[0].First >= packet.ICMPv6 {
		f, name = saved.IPv6, "ipv6"
	}
	if r.proto == 0 {
		r.keys.add(false, "proto", []string{policy.ProtocolName(uint8(saved.ICMPProto(f)))})
	}
	if r.cond.Field[packet.Family] == nil {
		r.keys.add(false, "family", []string{name})
	}
	r.keys.add(true, "icmp", policy.MessageWords(saved.Values{{First: saved.ICMPBase(f), Last: saved.ICMPBase(f) + 0xffff}}.And(v.Not(packet.ICMP))))
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
