// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net/netip"
)

const (
	ipv4Header     = 20     // bytes, without options
	ipv4MF         = 0x2000 // more fragments
	ipv4DF         = 0x4000 // do not fragment
	ipv4OffsetMask = 0x1fff // of the fragment field, in units of 8 bytes

	// minTCPBefore is the smallest allowed offset in bytes of a later fragment of a TCP segment. The first fragment then contains the TCP header (RFC
	// 3128).
	minTCPBefore = 20
)

// IPv4 option types (RFC 7126).
const (
	optEnd         = 0
	optNop         = 1
	optLooseSource = 131
	optStrictRoute = 137
	optRouterAlert = 148
)

// ipv4 parses an IPv4 header (RFC 791). hasL4 is false if no L4 header follows. That is so in a later fragment, or if the IP header cannot be read.
// In the second case Kind is Malformed.
func (p *Packet) ipv4(b []byte) (rest []byte, hasL4 bool) {
	header, ok := p.ipv4Bounds(b)
	if !ok {
		return nil, false
	}
	total := int(binary.BigEndian.Uint16(header[2:]))
	p.failIf(total > len(b), Truncated)
	rest = b[len(header):min(total, len(b))]

	p.Kind = IP
	p.Src = netip.AddrFrom4([4]byte(header[12:16]))
	p.Dst = netip.AddrFrom4([4]byte(header[16:20]))
	p.Value[Family] = FamilyIPv4
	p.Value[Length] = uint32(total)
	p.Value[DSCP] = uint32(header[1] >> 2)
	p.Value[TTL] = uint32(header[8])
	p.Value[Proto] = uint32(header[9])
	p.failIf(header[8] == 0, TTLZero)
	p.failIf(checksum(header, 0) != 0, IPChecksum)
	p.ipv4Options(header[ipv4Header:])
	p.ipv4Fragment(binary.BigEndian.Uint16(header[6:]), total)
	return rest, p.Value[Fragment] != FragmentLater
}

// ipv4Bounds returns the header with its options. ok is false if the header is not complete or its lengths contradict each other.
func (p *Packet) ipv4Bounds(b []byte) (header []byte, ok bool) {
	if len(b) < ipv4Header {
		p.malformed(Truncated)
		return nil, false
	}
	ihl := int(b[0]&0x0f) * 4
	if b[0]>>4 != 4 || ihl < ipv4Header {
		p.malformed(IPHeader)
		return nil, false
	}
	if ihl > len(b) {
		p.malformed(Truncated)
		return nil, false
	}
	if int(binary.BigEndian.Uint16(b[2:])) < ihl {
		p.malformed(IPHeader)
		return nil, false
	}
	return b[:ihl], true
}

// ipv4Options parses the options. An option with an invalid length ends the loop. It only fails the check ip-options, regardless of its type.
func (p *Packet) ipv4Options(b []byte) {
	for len(b) > 0 && b[0] != optEnd {
		if b[0] == optNop {
			b = b[1:]
			continue
		}
		n, ok := optionLength(b)
		if !ok {
			p.fail(IPOptions)
			return
		}
		switch b[0] {
		case optLooseSource, optStrictRoute:
			p.fail(SourceRoute)
		case optRouterAlert:
		default:
			p.fail(IPOptions)
		}
		b = b[n:]
	}
}

// optionLength returns the length byte of the IPv4 or TCP option at the start of b. The length includes the bytes of the type and of the length. ok
// is false if there is no length byte, or if the length is invalid.
func optionLength(b []byte) (n int, ok bool) {
	if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
		return 0, false
	}
	return int(b[1]), true
}

// ipv4Fragment parses the header's fragment field.
func (p *Packet) ipv4Fragment(field uint16, total int) {
	offset := int(field&ipv4OffsetMask) * 8
	p.fragment(offset, field&ipv4MF != 0, total)
}

// fragment records the position of a fragment within its datagram. size is the length in bytes that the header states. The end of the fragment is
// computed from it.
func (p *Packet) fragment(offset int, more bool, size int) {
	switch {
	case offset > 0:
		p.Value[Fragment] = FragmentLater
		p.failIf(p.Value[Proto] == ProtoTCP && offset < minTCPBefore, TinyFragment)
	case more:
		p.Value[Fragment] = FragmentFirst
	default:
		p.Value[Fragment] = FragmentNone
		return
	}
	p.failIf(offset+size > maxLength, FragmentOverflow)
}

// checksum returns the Internet checksum of b (RFC 1071). sum is the sum of a pseudo header, which is included. If b contains its own checksum and is
// intact, the result is 0.
func checksum(b []byte, sum uint32) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
