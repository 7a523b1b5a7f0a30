// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/floodwall/floodwall/internal/lab"
)

// Packet is an IPv4 packet of UDP or TCP, but not a fragment.
type Packet struct {
	From, To     netip.Addr
	Proto        lab.Proto
	SPort, DPort uint16
	TTL          uint8
	ID           uint16 // of IPv4; 0 sets DF, like Linux and Windows do for UDP and SYNs

	Flags    lab.TCPFlags
	Seq, Ack uint32
	Window   uint16
	Options  []byte // of TCP, in whole 32-bit words

	Payload []byte
}

// The lengths of headers (IEEE 802.3, RFC 791, RFC 768, RFC 9293).
const (
	etherHeader, ipHeader, udpHeader, tcpHeader = 14, 20, 8, 20

	etherLeast = 60 // of a frame, without its check sequence
)

// appendFrame appends the packet as an Ethernet frame, with its checksums.
func (p *Packet) appendFrame(b []byte, to, from net.HardwareAddr) []byte {
	start := len(b)
	b = append(append(append(b, to...), from...), 0x08, 0x00)
	header := udpHeader
	if p.Proto == lab.TCP {
		header = tcpHeader + len(p.Options)
	}
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipHeader+header+len(p.Payload)))
	b = binary.BigEndian.AppendUint16(b, p.ID)
	fragment := uint16(0)
	if p.ID == 0 {
		fragment = 1 << 14 // do not fragment
	}
	b = binary.BigEndian.AppendUint16(b, fragment)
	b = append(b, p.TTL, byte(p.Proto), 0, 0)
	src, dst := p.From.As4(), p.To.As4()
	b = append(append(b, src[:]...), dst[:]...)
	ip := b[start+etherHeader:]
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:ipHeader], 0)))

	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, p.SPort), p.DPort)
	at := 6 // of the checksum
	if p.Proto == lab.TCP {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, p.Seq), p.Ack)
		b = append(b, byte(header/4<<4), byte(p.Flags))
		b = append(binary.BigEndian.AppendUint16(b, p.Window), 0, 0, 0, 0)
		b = append(b, p.Options...)
		at = 16
	} else {
		b = append(binary.BigEndian.AppendUint16(b, uint16(header+len(p.Payload))), 0, 0)
	}
	b = append(b, p.Payload...)
	l4 := b[start+etherHeader+ipHeader:]
	putSum(l4, at, src, dst, p.Proto)
	for len(b)-start < etherLeast {
		b = append(b, 0)
	}
	return b
}

// putSum computes the checksum of UDP or TCP, which includes the pseudo header (RFC 768, RFC 9293, 3.1). In UDP, 0 means no checksum, so a sum of 0
// is sent as all ones.
func putSum(l4 []byte, at int, src, dst [4]byte, proto lab.Proto) {
	l4[at], l4[at+1] = 0, 0
	s := ^fold(sum(l4, sum(src[:], sum(dst[:], uint32(proto)+uint32(len(l4))))))
	if s == 0 && proto != lab.TCP {
		s = 0xffff
	}
	binary.BigEndian.PutUint16(l4[at:], s)
}

// sum adds 16-bit words (RFC 1071).
func sum(b []byte, s uint32) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) > 0 {
		s += uint32(b[0]) << 8
	}
	return s
}

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
