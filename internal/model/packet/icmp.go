// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

const (
	icmpHeader = 8    // bytes, for both ICMP and ICMPv6
	maxEcho    = 1024 // the largest IP length of an echo message, in bytes
	onLinkHops = 255  // hop limit of neighbor discovery (RFC 4861, 6.1 and 7.1)

	routerSolicitation = 133 // the first ICMPv6 type of neighbor discovery
	redirectV6         = 137 // the last ICMPv6 type of neighbor discovery
)

// Types of ICMP (RFC 792) and of ICMPv6 (RFC 4443, 4).
const (
	EchoReply     = 0
	EchoRequest   = 8
	EchoRequestV6 = 128
	EchoReplyV6   = 129
)

// icmp parses an ICMP (RFC 792) or ICMPv6 (RFC 4443) header at the start of b.
func (p *Packet) icmp(b []byte) {
	if len(b) < icmpHeader {
		p.short()
		return
	}
	p.Payload = b[icmpHeader:]
	kind, echo := b[0], b[0] == EchoRequest
	p.Value[ICMP] = uint32(binary.BigEndian.Uint16(b))
	if p.Value[Family] == FamilyIPv6 {
		p.Value[ICMP] += ICMPv6
		echo = kind == EchoRequestV6
		p.failIf(isDiscovery(kind) && p.Value[TTL] != onLinkHops, NDHopLimit)
	} else {
		p.failIf(isObsolete(kind), ICMPType)
	}
	p.failIf(echo && p.Value[Length] > maxEcho, ICMPLarge)
}

// isDiscovery reports whether an ICMPv6 type belongs to neighbor discovery (RFC 4861, 4).
func isDiscovery(kind byte) bool { return kind >= routerSolicitation && kind <= redirectV6 }

// isObsolete reports whether an ICMP type is obsolete, so that no host should send or accept it (RFC 6633, RFC 6918), or is a redirect, which only routers on the link send.
func isObsolete(kind byte) bool {
	switch kind {
	case 4, // source quench
		5,      // redirect
		13, 14, // timestamp and reply
		15, 16, // information request and reply
		17, 18: // address mask request and reply
		return true
	}
	return false
}
