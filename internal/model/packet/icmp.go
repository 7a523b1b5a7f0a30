package packet

import "encoding/binary"

const (
	icmpHeader    = 8    // bytes, ICMP and ICMPv6 alike
	maxEcho       = 1024 // bytes of IP length
	onLinkHops    = 255  // hop limit of neighbor discovery (RFC 4861, 6.1 and 7.1)
	echoRequest   = 8
	echoReply     = 0
	echoRequestV6 = 128
	echoReplyV6   = 129

	routerSolicitation = 133 // the first type of neighbor discovery
	redirectV6         = 137 // and the last
)

// icmp reads an ICMP (RFC 792) or ICMPv6 (RFC 4443) header at the start of b.
func (p *Packet) icmp(b []byte) {
	if len(b) < icmpHeader {
		p.short()
		return
	}
	p.Payload = b[icmpHeader:]
	kind, echo := b[0], b[0] == echoRequest
	p.Value[ICMP] = uint32(binary.BigEndian.Uint16(b))
	if p.Value[Family] == FamilyIPv6 {
		p.Value[ICMP] += ICMPv6
		echo = kind == echoRequestV6
		p.failIf(isDiscovery(kind) && p.Value[TTL] != onLinkHops, NDHopLimit)
	} else {
		p.failIf(isObsolete(kind), ICMPType)
	}
	p.failIf(echo && p.Value[Length] > maxEcho, ICMPLarge)
}

// isDiscovery reports whether an ICMPv6 type is of neighbor discovery (RFC 4861, 4).
func isDiscovery(kind byte) bool { return kind >= routerSolicitation && kind <= redirectV6 }

// isObsolete reports whether no host should send or heed an ICMP type any more (RFC 6633, RFC 6918), or only routers
// on the link would (redirect).
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
