// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// reflectors are UDP services whose answers are larger than the questions, by port: US-CERT alert TA14-017A, and later additions.
var reflectors = map[uint32]string{
	17: "QOTD", 19: "CharGEN", 53: "DNS", 69: "TFTP", 111: "portmap", 123: "NTP", 137: "NetBIOS", 161: "SNMP", 389: "CLDAP", 427: "SLP", 500: "IKE", 520: "RIP",
	623: "IPMI", 1434: "MS-SQL", 1604: "Citrix", 1900: "SSDP", 3283: "ARD", 3389: "RDP", 3478: "STUN", 3702: "WS-Discovery", 5093: "Sentinel",
	5353: "mDNS", 5683: "CoAP", 10001: "Ubiquiti", 11211: "memcached", 27015: "Steam", 27960: "Quake", 33848: "Jenkins", 37810: "DVR",
}

// TCP flags (RFC 9293).
const (
	fin = 0x01
	syn = 0x02
	rst = 0x04
	ack = 0x10

	tcpFlags = 0x3f
)

// vectorOf returns the name of the kind of flood that a packet could belong to. It uses only the packet's fields.
func vectorOf(s *suggest.Sample) string {
	switch {
	case s.Value[packet.Fragment] == packet.FragmentLater:
		return "fragment flood"
	case s.Value[packet.Proto] == packet.ProtoTCP:
		return tcpVector(s.Value[packet.Flags])
	case s.Value[packet.Proto] == packet.ProtoUDP:
		return udpVector(s)
	case s.Value[packet.ICMP] != packet.ICMPNone:
		return icmpVector(s.Value[packet.ICMP])
	}
	return fmt.Sprintf("flood of IP protocol %d", s.Value[packet.Proto])
}

func tcpVector(flags uint32) string {
	switch flags & tcpFlags {
	case syn:
		return "SYN flood"
	case syn | ack:
		return "SYN-ACK reflection"
	case ack:
		return "ACK flood"
	}
	switch {
	case flags == packet.FlagsNone:
		return "flood of damaged TCP headers"
	case flags&rst != 0:
		return "RST flood"
	case flags&(ack|fin) == fin:
		return "FIN flood"
	case flags&ack != 0:
		return "TCP data flood"
	}
	return "flood of invalid TCP flags"
}

func udpVector(s *suggest.Sample) string {
	sport, dport := s.Value[packet.SPort], s.Value[packet.DPort]
	const response = 0x80 // the bit QR of a DNS message (RFC 1035, 4.1.1)
	if name := reflectors[sport-packet.PortUDP]; name != "" && sport >= packet.PortUDP && sport < packet.PortNone {
		if sport != packet.PortUDP+53 || len(s.Payload) < 3 || s.Payload[2]&response != 0 {
			return name + " amplification"
		}
	}
	if sport == packet.PortUDP+4500 && len(s.Payload) >= 4 && [4]byte(s.Payload) == [4]byte{} { // the non-ESP marker (RFC 3948, 2.2)
		return "IKE amplification"
	}
	if dport == packet.PortUDP+53 {
		return "DNS query flood"
	}
	if name := openingVector(s.Payload); name != "" {
		return name
	}
	return "UDP flood"
}

// wireguardInitiation is the length of the first message of a handshake, in bytes (https://www.wireguard.com/papers/wireguard.pdf, 5.4.2).
const wireguardInitiation = 148

// openingVector returns the name of a flood of first packets of a protocol, by their format. Each such packet costs the server an answer or a key
// exchange. The result is "" for other packets.
func openingVector(payload []byte) string {
	switch {
	case packet.A2S.Asks(payload):
		return "A2S query flood"
	case packet.RakNet.Asks(payload):
		return "RakNet request flood"
	case len(payload) == wireguardInitiation && [4]byte(payload) == [4]byte{1}:
		return "WireGuard handshake flood"
	case len(payload) > 0 && payload[0]&0x80 != 0 && packet.QUIC.Begins(payload):
		return "QUIC Initial flood"
	}
	return ""
}

func icmpVector(icmp uint32) string {
	const echo4, echo6 = 8, 128
	kind := icmp >> 8 & 0xff
	v6 := icmp >= packet.ICMPv6
	if !v6 && kind == echo4 || v6 && kind == echo6 {
		return "ping flood"
	}
	return "ICMP flood"
}
