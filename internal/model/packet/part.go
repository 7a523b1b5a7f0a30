// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// Part parts a packet that the kernel has joined from segments (GRO), whose payload has `size` bytes each, the last one possibly fewer. It returns the
// frames of the segments, as the kernel would send them (tcp_gso_segment and __udp_gso_segment of net/ipv4): the lengths are those of the segment, the
// identification of IPv4 and the sequence number of TCP continue, and the flags FIN and PSH are on the last segment only. Checksums of TCP and UDP are
// not set. The frame has an Ethernet header, an IP header without extension headers, and a header of TCP or UDP.
func Part(frame []byte, size int) (segments [][]byte) {
	const ethernet, finPSH = 14, 0x09
	ip, v6 := frame[ethernet:], frame[ethernet]>>4 == 6
	l4, proto := 4*int(ip[0]&15), ip[9]
	if v6 {
		l4, proto = 40, ip[6]
	}
	headers := ethernet + l4 + 8
	if proto == ProtoTCP {
		headers = ethernet + l4 + 4*int(ip[l4+12]>>4)
	}
	for from := headers; from < len(frame); from += size {
		s := append(append([]byte{}, frame[:headers]...), frame[from:min(from+size, len(frame))]...)
		ip, number := s[ethernet:], (from-headers)/size
		if !v6 {
			binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(number))
		}
		SetLength(s, len(s))
		if proto == ProtoTCP {
			binary.BigEndian.PutUint32(ip[l4+4:], binary.BigEndian.Uint32(ip[l4+4:])+uint32(from-headers))
			if from+size < len(frame) {
				ip[l4+13] &^= finPSH
			}
		}
		segments = append(segments, s)
	}
	return segments
}

// SetLength writes the length of a frame into its headers of IP and UDP: a packet that the kernel has joined states the length of all. The frame may be
// cut short behind these headers. A frame that is no IP packet, or that is cut short in them, stays as it is.
func SetLength(frame []byte, length int) {
	const ethernet, tag, ipv4, ipv6, udp = 14, 4, 20, 40, 8
	at, ethertype := ethernet, uint16(0)
	for ; len(frame) >= at+ipv4; at += tag {
		if ethertype = binary.BigEndian.Uint16(frame[at-2:]); ethertype != 0x8100 && ethertype != 0x88a8 {
			break
		}
	}
	if len(frame) < at+ipv4 {
		return
	}
	ip := frame[at:]
	l4, proto := ipv6, ip[6]
	switch size := 4 * int(ip[0]&15); {
	case ethertype == 0x0800 && size >= ipv4 && len(ip) >= size:
		l4, proto = size, ip[9]
		binary.BigEndian.PutUint16(ip[2:], uint16(length-at))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], checksum(ip[:l4], 0))
	case ethertype == 0x86dd:
		binary.BigEndian.PutUint16(ip[4:], uint16(length-at-l4))
	default:
		return
	}
	if proto == ProtoUDP && len(ip) >= l4+udp {
		binary.BigEndian.PutUint16(ip[l4+4:], uint16(length-at-l4))
	}
}
