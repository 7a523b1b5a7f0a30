// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// EtherTypes that the decoder knows (IEEE 802 numbers).
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100 // IEEE 802.1Q
	etherQinQ = 0x88a8 // IEEE 802.1ad
	etherIPv6 = 0x86dd
)

// IP protocol numbers (IANA) that the decoder knows.
const (
	protoHopByHop = 0
	ProtoICMP     = 1
	ProtoTCP      = 6
	ProtoUDP      = 17
	protoRouting  = 43
	protoFragment = 44
	protoAH       = 51
	ProtoIGMP     = 2
	ProtoICMPv6   = 58
	protoDstOpts  = 60
)

const (
	etherHeader = 14 // bytes
	vlanTag     = 4
	maxVLANs    = 2
	maxLength   = 65535 // the largest IP datagram after reassembly (RFC 791)
)

// SmallestBits is the length in bits of the largest IP packet that fits into the smallest Ethernet frame (IEEE 802.3, 3.2.7). Limits in bits count
// the IP packet only.
const SmallestBits = 8 * 46

// Decode reads an Ethernet frame, from its destination address to its last byte without the frame check sequence. It
// accepts any bytes, and allocates nothing. A frame below 14 bytes, which no device delivers, is truncated.
//
// Each parser takes the bytes from its header on, and returns the bytes behind the header. The length in the IP header
// limits these bytes to the packet, if the frame is not shorter.
func Decode(frame []byte) Packet {
	p := Packet{Kind: NotIP}
	p.Value[DPort] = PortNone
	p.Value[SPort] = PortNone
	p.Value[Flags] = FlagsNone
	p.Value[ICMP] = ICMPNone
	p.Value[VLAN] = VLANNone
	p.Value[DNS] = DNSNone
	p.Value[MSS] = MSSNone

	etherType, rest, ok := p.ethernet(frame)
	if !ok {
		return p
	}
	var hasL4 bool
	switch etherType {
	case etherIPv4:
		rest, hasL4 = p.ipv4(rest)
	case etherIPv6:
		rest, hasL4 = p.ipv6(rest)
	}
	if p.Kind != IP {
		return p
	}
	p.addresses()
	if hasL4 {
		p.transport(rest)
	}
	return p
}

// ethernet reads the Ethernet header and up to two VLAN tags.
func (p *Packet) ethernet(b []byte) (etherType uint16, rest []byte, ok bool) {
	if len(b) < etherHeader {
		p.fail(Truncated)
		return 0, nil, false
	}
	if b[6]&1 != 0 {
		p.fail(SourceMAC)
	}
	etherType, rest = binary.BigEndian.Uint16(b[12:]), b[etherHeader:]
	for tags := 0; etherType == etherVLAN || etherType == etherQinQ; tags++ {
		if tags == maxVLANs {
			p.fail(VLANDepth)
			return 0, nil, false
		}
		if len(rest) < vlanTag {
			p.fail(Truncated)
			return 0, nil, false
		}
		if tags == 0 {
			p.Value[VLAN] = uint32(binary.BigEndian.Uint16(rest) & 0x0fff)
		}
		etherType, rest = binary.BigEndian.Uint16(rest[2:]), rest[vlanTag:]
	}
	return etherType, rest, true
}

// transport parses the L4 header at the start of b. b ends at the end of the packet.
func (p *Packet) transport(b []byte) {
	p.L4 = b
	v4 := p.Value[Family] == FamilyIPv4
	switch proto := p.Value[Proto]; {
	case proto == ProtoTCP:
		p.tcp(b)
	case proto == ProtoUDP:
		p.udp(b)
	case proto == ProtoICMP && v4, proto == ProtoICMPv6 && !v4:
		p.icmp(b)
	default:
		p.Payload = b
	}
}

// fail records that the packet fails the check c.
func (p *Packet) fail(c Check) { p.Failed = p.Failed.With(c) }

// failIf records that the packet fails the check c if bad is true.
func (p *Packet) failIf(bad bool, c Check) {
	if bad {
		p.fail(c)
	}
}

// short records that the packet ends within a header. In a first fragment, the sender has split the header, so the check TinyFragment fails.
// Otherwise the check Truncated fails.
func (p *Packet) short() {
	if p.Value[Fragment] == FragmentFirst {
		p.fail(TinyFragment)
	} else {
		p.fail(Truncated)
	}
}

// malformed records that the packet has no readable IP header. why is the check that fails.
func (p *Packet) malformed(why Check) {
	p.Kind = Malformed
	p.fail(why)
}
