// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// IP protocol numbers (IANA).
const (
	protoTCP     = 6
	protoUDP     = 17
	protoGRE     = 47
	protoSCTP    = 132
	protoUDPLite = 136
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
	flagSYN   = 0x02
)

// attempt is one datagram, in one or more frames, that an adversary tries to send to a socket.
type attempt struct {
	kind         kind
	src, dst     netip.Addr
	proto        uint8
	sport, dport uint16
	flags        uint8
	total        int  // number of bytes of the part that can be fragmented
	formed       bool // the datagram is well-formed, so it must arrive if all its frames pass
	frames       []frame
	got          bool
	of           *connection // the connection that carries it; nil: none
}

// frame is a frame of an attempt, with the values of its headers.
type frame struct {
	bytes    []byte
	metadata bool // a second tag, with VID 0, is in the packet's metadata, as from a network card that strips tags
	offset   int  // position of the frame's data in the part that can be fragmented
	size     int
	fragment uint32 // like packet.Fragment
	length   uint32
	ttl      uint32
	dscp     uint32
	vlan     uint32 // of the outermost tag in the frame, or packet.VLANNone
}

func (a *attempt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: protocol %d %s:%d > %s:%d flags %#x", a.kind, a.proto, a.src, a.sport, a.dst, a.dport, a.flags)
	for _, f := range a.frames {
		note := ""
		if f.metadata {
			note = " behind a tag of VID 0 in metadata"
		}
		fmt.Fprintf(&b, "\n  %x%s", f.bytes, note)
	}
	return b.String()
}

// sum returns the Internet checksum (RFC 1071) of b. The parameter start is a partial sum.
func sum(b []byte, start uint32) uint16 {
	for ; len(b) > 1; b = b[2:] {
		start += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		start += uint32(b[0]) << 8
	}
	for start > 0xffff {
		start = start>>16 + start&0xffff
	}
	return ^uint16(start)
}

// pseudo returns the sum of the pseudo header.
func (a *attempt) pseudo(size int) uint32 {
	n := uint32(a.proto) + uint32(size)
	for _, addr := range []netip.Addr{a.src, a.dst} {
		b := addr.AsSlice()
		for i := 0; i < len(b); i += 2 {
			n += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	return n
}

// segment returns the L4 header with its payload and a correct checksum.
func (a *attempt) segment(payload []byte) []byte {
	var b []byte
	at := 0
	switch a.proto {
	case protoTCP:
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, a.sport), a.dport)
		if a.of != nil {
			b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, a.of.seq), a.of.ack)
			b = append(b, 5<<4, a.flags, 0xff, 0xff, 0, 0, 0, 0)
		} else {
			b = append(b, 0, 0, 0, 1, 0, 0, 0, 0, 6<<4, a.flags, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 5, 0xb4)
		}
		at = 16
	case protoUDP:
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, a.sport), a.dport)
		b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
		b = append(b, 0, 0)
		at = 6
	case protoUDPLite: // RFC 3828: the checksum covers all
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, a.sport), a.dport)
		b = append(b, 0, 0, 0, 0)
		at = 6
	}
	b = append(b, payload...)
	if at > 0 {
		check := sum(b, a.pseudo(len(b)))
		if check == 0 && a.proto != protoTCP {
			check = 0xffff // 0 means no checksum (RFC 768)
		}
		binary.BigEndian.PutUint16(b[at:], check)
	}
	return b
}

// header has the fields of an IP header that an attempt varies.
type header struct {
	ttl, dscp uint8
	options   []byte // of IPv4, a multiple of 4 bytes
	id        uint32
	lie       int // added to the length in the header
	ihl       int // 0: the correct one
	badSum    bool
}

// ipv4 returns an IPv4 packet. For a fragment, the parameters are offset, and whether more fragments follow.
func (a *attempt) ipv4(h header, body []byte, offset int, more bool) []byte {
	words := 5 + len(h.options)/4
	b := make([]byte, 20, 20+len(h.options)+len(body))
	ihl := words
	if h.ihl != 0 {
		ihl = h.ihl
	}
	b[0], b[1] = byte(4<<4|ihl), h.dscp<<2
	binary.BigEndian.PutUint16(b[2:], uint16(words*4+len(body)+h.lie))
	binary.BigEndian.PutUint16(b[4:], uint16(h.id))
	field := uint16(offset / 8)
	if more {
		field |= 0x2000
	}
	binary.BigEndian.PutUint16(b[6:], field)
	b[8], b[9] = h.ttl, a.proto
	src, dst := a.src.As4(), a.dst.As4()
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	b = append(append(b, h.options...), body...)
	check := sum(b[:min(max(ihl, 5)*4, len(b))], 0)
	if h.badSum {
		check ^= 0x5555
	}
	binary.BigEndian.PutUint16(b[10:], check)
	return b
}

// ipv6 returns an IPv6 packet. The parameter next is the type of the header after the IPv6 header.
func (a *attempt) ipv6(h header, next uint8, body []byte) []byte {
	b := make([]byte, 40, 40+len(body))
	binary.BigEndian.PutUint32(b, 6<<28|uint32(h.dscp)<<22)
	binary.BigEndian.PutUint16(b[4:], uint16(len(body)+h.lie))
	b[6], b[7] = next, h.ttl
	src, dst := a.src.As16(), a.dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	return append(b, body...)
}

// fragmentHeader returns an IPv6 fragment header.
func fragmentHeader(next uint8, offset int, more bool, id uint32) []byte {
	b := []byte{next, 0, 0, 0, 0, 0, 0, 0}
	field := uint16(offset &^ 7)
	if more {
		field |= 1
	}
	binary.BigEndian.PutUint16(b[2:], field)
	binary.BigEndian.PutUint32(b[4:], id)
	return b
}

// extension returns an IPv6 extension header that Linux skips: PadN options of zeros, or a routing header with no segments left.
func extension(next uint8, kind uint8, units int) []byte {
	b := make([]byte, 8*(units+1))
	b[0], b[1] = next, byte(units)
	if kind == extRouting {
		b[2] = 4 // segment routing (RFC 8754)
		if units == 0 {
			b[2] = 0
		}
		return b
	}
	for at := 2; at < len(b); { // Linux takes PadN of up to 7 bytes (net/ipv6/exthdrs.c, ip6_parse_tlv)
		n := min(7, len(b)-at)
		if len(b)-at-n == 1 {
			n--
		}
		b[at], b[at+1] = 1, byte(n-2)
		at += n
		if units > 0 && at < len(b) { // an unknown option, which Linux skips: it accepts at most 7 bytes of padding in a row
			n = min(10, len(b)-at)
			switch {
			case n == 1:
				b[at] = 0
			default:
				if len(b)-at-n == 1 {
					n--
				}
				b[at], b[at+1] = 0x1e, byte(n-2)
			}
			at += n
		}
	}
	return b
}

const (
	extHop      = 0
	extRouting  = 43
	extFragment = 44
	extDst      = 60
)

// ethernet returns a packet with the Ethernet header and VLAN tags in front.
func ethernet(ether uint16, packet []byte, tags ...tag) []byte {
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for _, t := range tags {
		b = binary.BigEndian.AppendUint16(b, t.ether)
		b = binary.BigEndian.AppendUint16(b, t.vid)
	}
	return append(binary.BigEndian.AppendUint16(b, ether), packet...)
}

type tag struct{ ether, vid uint16 }
