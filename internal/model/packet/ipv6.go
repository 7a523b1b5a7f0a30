// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net/netip"
)

const (
	ipv6Header     = 40 // bytes
	extHeader      = 8  // bytes: the shortest extension header, and the size of a fragment header
	maxExtHeaders  = 6  // the largest number of headers that are read; the kernel's BPF verifier requires a bound
	routingType0   = 0  // the routing header that RFC 5095 forbids
	ipv6MF         = 1  // more fragments, in the fragment header's second 16 bits
	ipv6OffsetBits = 3  // number of bits below the offset in that field
)

// ipv6 parses an IPv6 header and its extension headers (RFC 8200). hasL4 is false if no L4 header follows, if the end of the extension headers was
// not found, or if the IP header cannot be read. In the last case Kind is Malformed.
func (p *Packet) ipv6(b []byte) (rest []byte, hasL4 bool) {
	if len(b) < ipv6Header {
		p.malformed(Truncated)
		return nil, false
	}
	if b[0]>>4 != 6 {
		p.malformed(IPHeader)
		return nil, false
	}
	total := int(binary.BigEndian.Uint16(b[4:])) + ipv6Header
	p.failIf(total > len(b), Truncated)

	p.Kind = IP
	p.Src = netip.AddrFrom16([16]byte(b[8:24]))
	p.Dst = netip.AddrFrom16([16]byte(b[24:40]))
	p.Value[Family] = FamilyIPv6
	p.Value[Length] = uint32(min(total, maxLength))
	p.Value[DSCP] = uint32(binary.BigEndian.Uint16(b) >> 6 & 0x3f)
	p.Value[TTL] = uint32(b[7])
	p.failIf(b[7] == 0, TTLZero)
	c := chain{next: b[6], rest: b[ipv6Header:min(total, len(b))], missing: max(0, total-len(b))}
	hasL4 = p.extensions(&c)
	return c.rest, hasL4
}

// chain is a position in a chain of extension headers.
type chain struct {
	next     byte   // the type of the next header
	rest     []byte // the bytes after the headers that were read, up to the end of the packet or of the frame
	missing  int    // bytes that the IP header counts but the frame does not contain
	count    int    // headers so far
	fragment bool   // one of the headers was a fragment header
}

// extensions reads the extension headers up to the L4 header. hasL4 reports whether an L4 header follows. Proto becomes the type of the header at
// which the search ended.
func (p *Packet) extensions(c *chain) (hasL4 bool) {
	for ; isExtension(c.next); c.count++ {
		p.Value[Proto] = uint32(c.next)
		if c.count == maxExtHeaders {
			p.fail(ExtHeaders)
			return false
		}
		if !p.extension(c) {
			return false
		}
	}
	p.Value[Proto] = uint32(c.next)
	return true
}

// isExtension reports whether extension skips a header of this type. It does not skip AH (RFC 4302), as in IPv4. IPsec checks the data after an AH,
// and netfilter also stops there (net/ipv6/exthdrs_core.c, IP6_FH_F_AUTH).
func isExtension(next byte) bool {
	switch next {
	case protoHopByHop, protoRouting, protoFragment, protoDstOpts:
		return true
	}
	return false
}

// extension parses one extension header and moves c to the next header. It returns false if no readable header follows.
func (p *Packet) extension(c *chain) bool {
	if len(c.rest) < extHeader {
		p.short()
		return false
	}
	switch c.next {
	case protoHopByHop:
		p.failIf(c.count > 0, ExtOrder)
	case protoRouting:
		p.failIf(c.rest[2] == routingType0, SourceRoute)
	case protoFragment:
		p.failIf(c.fragment, ExtOrder)
		c.fragment = true
		p.ipv6Fragment(c)
		if p.Value[Fragment] == FragmentLater {
			return false
		}
	}
	size := extensionSize(c.next, c.rest[1])
	if size > len(c.rest) {
		p.short()
		return false
	}
	c.next, c.rest = c.rest[0], c.rest[size:]
	return true
}

// extensionSize returns the size in bytes of an extension header whose second byte is length.
func extensionSize(kind, length byte) int {
	if kind == protoFragment {
		return extHeader
	}
	return (int(length) + 1) * 8
}

// ipv6Fragment parses the fragment header at the start of c.
func (p *Packet) ipv6Fragment(c *chain) {
	field := binary.BigEndian.Uint16(c.rest[2:])
	offset, more := int(field>>ipv6OffsetBits)*8, field&ipv6MF != 0
	p.failIf(offset == 0 && !more, AtomicFragment)
	if offset > 0 {
		p.Value[Proto] = uint32(c.rest[0])
	}
	p.fragment(offset, more, len(c.rest)-extHeader+c.missing)
}
