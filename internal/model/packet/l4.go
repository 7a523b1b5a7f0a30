// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net/netip"
)

// appendL4 appends the L4 header. Its length and checksum are still 0. A TCP or UDP packet without ports is a later fragment and has no L4 header. A
// packet with ports has the header even if it is a later fragment. A receiver must then not parse these bytes as a header.
func (s *Spec) appendL4(b []byte) []byte {
	switch {
	case s.layer == layerICMP:
		return append(b, s.icmpType(), byte(s.get(numCode, 0)), 0, 0, 0, 0, 0, 0)
	case s.layer == layerTCP && s.ports:
		return s.appendTCP(s.appendPorts(b))
	case s.layer == layerUDP && s.ports:
		return append(s.appendPorts(b), 0, 0, 0, 0)
	}
	return b
}

// icmpType returns the ICMP type. The default is an echo request.
func (s *Spec) icmpType() byte {
	return byte(s.get(numType, echoTypes[s.proto]["echo-request"]))
}

func (s *Spec) appendPorts(b []byte) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, s.sport), s.dport)
}

// appendTCP appends the TCP header from behind the ports on.
func (s *Spec) appendTCP(b []byte) []byte {
	start := len(b) - 4
	ack := uint32(0)
	if s.flags&tcpACK != 0 {
		ack = 1
	}
	b = binary.BigEndian.AppendUint32(b, s.get(numSeq, 1))
	b = binary.BigEndian.AppendUint32(b, s.get(numAck, ack))
	b = append(b, 0, s.flags)
	b = binary.BigEndian.AppendUint16(b, uint16(s.get(numWin, defaultWindow)))
	b = append(b, 0, 0, 0, 0) // checksum and urgent pointer
	b = pad(s.appendTCPOptions(b), start, 4)
	b[start+12] = byte(s.get(numDoff, uint32(len(b)-start)/4)) << 4
	return b
}

// appendTCPOptions appends the TCP options that the line gives. By default, a SYN has the MSS option, and other segments have no options.
func (s *Spec) appendTCPOptions(b []byte) []byte {
	if s.tcpText != "" {
		given, _ := tcpOptions(s.tcpText) // Parse has already checked the text
		return append(b, given...)
	}
	if s.flags&tcpSYN != 0 {
		return binary.BigEndian.AppendUint16(append(b, tcpOptMSS, 4), defaultMSS)
	}
	return b
}

// checksumOffset is the offset in bytes of the checksum in each L4 header.
var checksumOffset = [...]int{layerTCP: 16, layerUDP: 6, layerICMP: 2}

// putL4Checksum sets the checksum over l4 and the pseudo header, if the L4 header has a checksum.
func (s *Spec) putL4Checksum(l4 []byte) {
	if s.layer == layerRaw || s.layer != layerICMP && !s.ports || s.checksum == checksumZero {
		return
	}
	var pseudo uint32
	if s.layer != layerICMP || s.proto == ProtoICMPv6 {
		pseudo = s.pseudoHeader(len(l4))
	}
	sum := checksum(l4, pseudo)
	if s.layer == layerUDP && sum == 0 {
		sum = 0xffff // in UDP, 0 means that there is no checksum (RFC 768)
	}
	if s.checksum == checksumBad {
		sum = wrong(sum)
	}
	binary.BigEndian.PutUint16(l4[checksumOffset[s.layer]:], sum)
}

// pseudoHeader returns the sum of the pseudo header. In both families the pseudo header has the same fields (RFC 9293, 3.1; RFC 8200, 8.1).
func (s *Spec) pseudoHeader(size int) uint32 {
	sum := uint32(s.proto) + uint32(size)
	for _, a := range [...]netip.Addr{s.src, s.dst} {
		bytes := a.As16()
		for i := len(bytes) - a.BitLen()/8; i < len(bytes); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(bytes[i:]))
		}
	}
	return sum
}
