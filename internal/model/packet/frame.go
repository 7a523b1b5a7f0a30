// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net"
	"slices"
)

// The Ethernet addresses of generated frames. They are locally administered addresses.
var (
	defaultSource = [6]byte{2, 0, 0, 0, 0, 1}
	destination   = [6]byte{2, 0, 0, 0, 0, 2}
)

// Destination returns the Ethernet destination address of all generated frames.
func Destination() net.HardwareAddr { return slices.Clone(destination[:]) }

// Frame returns the Ethernet frame that s describes, without the frame check sequence, and without padding to the minimum frame size.
func (s Spec) Frame() []byte { return s.AppendFrame(make([]byte, 0, 128)) }

// AppendFrame appends the frame to b.
func (s Spec) AppendFrame(b []byte) []byte {
	start := len(b)
	b = s.appendEthernet(b)
	if s.layer == layerARP {
		b = s.appendARP(b)
	} else {
		b = s.appendPacket(b)
	}
	if s.has(numCut) {
		b = b[:start+min(len(b)-start, int(s.num[numCut]))]
	}
	return b
}

// linkHeader returns the number of bytes before the IP header.
func (s *Spec) linkHeader() int { return etherHeader + vlanTag*len(s.vlans) }

func (s *Spec) appendEthernet(b []byte) []byte {
	b = append(b, destination[:]...)
	b = append(b, s.sourceMAC[:]...)
	for i, id := range s.vlans {
		tpid := uint16(etherQinQ)
		if i == len(s.vlans)-1 {
			tpid = etherVLAN
		}
		b = binary.BigEndian.AppendUint16(b, tpid)
		b = binary.BigEndian.AppendUint16(b, id)
	}
	return binary.BigEndian.AppendUint16(b, s.etherType())
}

func (s *Spec) etherType() uint16 {
	switch {
	case s.layer == layerARP:
		return etherARP
	case s.src.Is4():
		return etherIPv4
	}
	return etherIPv6
}

// appendARP appends an ARP request (RFC 826) that asks for the destination's Ethernet address.
func (s *Spec) appendARP(b []byte) []byte {
	b = append(b, 0, 1, etherIPv4>>8, etherIPv4&0xff, 6, 4, 0, 1)
	b = append(b, s.sourceMAC[:]...)
	var src, dst [4]byte
	if s.src.IsValid() {
		src, dst = s.src.As4(), s.dst.As4()
	}
	b = append(b, src[:]...)
	b = append(b, 0, 0, 0, 0, 0, 0)
	return append(b, dst[:]...)
}

// appendPacket appends the headers and the payload. Then it sets the lengths and the checksums.
func (s *Spec) appendPacket(b []byte) []byte {
	ip := len(b)
	if s.src.Is4() {
		b = s.appendIPv4(b)
	} else {
		b = s.appendIPv6(b)
	}
	l4 := len(b)
	b = s.appendL4(b)
	b = append(b, s.payload...)
	if s.dns != nil {
		b = s.dns.append(b)
	}
	if missing := int(s.get(numLen, 0)) - (len(b) - ip); missing > 0 {
		b = append(b, make([]byte, missing)...)
	}
	s.putLengths(b[ip:], b[l4:])
	s.putL4Checksum(b[l4:])
	s.putIPv4Checksum(b[ip:])
	return b
}

// putLengths sets the length fields of the packet. l4 is the part of the packet after the IP headers.
func (s *Spec) putLengths(packet, l4 []byte) {
	total := s.get(numTotLen, uint32(len(packet)))
	if s.src.Is4() {
		binary.BigEndian.PutUint16(packet[2:], uint16(total))
	} else {
		binary.BigEndian.PutUint16(packet[4:], uint16(total-ipv6Header))
	}
	if s.layer == layerUDP && s.ports {
		binary.BigEndian.PutUint16(l4[4:], uint16(s.get(numUDPLen, uint32(len(l4)))))
	}
}

// putIPv4Checksum sets the checksum of the IPv4 header. It covers as many bytes as the header length field states.
func (s *Spec) putIPv4Checksum(packet []byte) {
	if !s.src.Is4() {
		return
	}
	size := max(ipv4Header, int(packet[0]&0x0f)*4)
	sum := checksum(packet[:min(size, len(packet))], 0)
	if s.checksum == checksumBad {
		sum = wrong(sum)
	}
	binary.BigEndian.PutUint16(packet[10:], sum)
}

// wrong returns a wrong checksum: neither sum nor 0.
func wrong(sum uint16) uint16 {
	if sum == 1 {
		return 2
	}
	return sum ^ 1
}

// pad appends zero bytes until the length of the part after start is a multiple of unit.
func pad(b []byte, start, unit int) []byte {
	for (len(b)-start)%unit != 0 {
		b = append(b, 0)
	}
	return b
}
