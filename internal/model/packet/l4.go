package packet

import (
	"encoding/binary"
	"net/netip"
)

// appendL4 appends the L4 header, length and checksum still 0. A TCP or UDP packet without ports, a later fragment, has
// none; one with ports has its header even in a later fragment, where nobody may read it as such.
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

// icmpType is the type, an echo request by default.
func (s *Spec) icmpType() byte {
	return byte(s.get(numType, echoTypes[s.proto]["echo-request"]))
}

func (s *Spec) appendPorts(b []byte) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, s.sport), s.dport)
}

// appendTCP appends what follows the ports.
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
	b = append(b, 0, 0, 0, 0) // checksum, urgent pointer
	b = pad(s.appendTCPOptions(b), start, 4)
	b[start+12] = byte(s.get(numDoff, uint32(len(b)-start)/4)) << 4
	return b
}

// appendTCPOptions appends the options of the line, or the MSS that every SYN carries.
func (s *Spec) appendTCPOptions(b []byte) []byte {
	if s.tcpText != "" {
		given, _ := tcpOptions(s.tcpText) // read once already, by Parse
		return append(b, given...)
	}
	if s.flags&tcpSYN != 0 {
		return binary.BigEndian.AppendUint16(append(b, tcpOptMSS, 4), defaultMSS)
	}
	return b
}

// checksumOffset is where each L4 header has its checksum.
var checksumOffset = [...]int{layerTCP: 16, layerUDP: 6, layerICMP: 2}

// putL4Checksum fills in the checksum over l4 and the pseudo header, if the packet has one.
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
		sum = 0xffff // 0 says that there is none (RFC 768)
	}
	if s.checksum == checksumBad {
		sum = wrong(sum)
	}
	binary.BigEndian.PutUint16(l4[checksumOffset[s.layer]:], sum)
}

// pseudoHeader is the sum of the pseudo header, which is that of the same fields in both families (RFC 9293, 3.1; RFC
// 8200, 8.1).
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
