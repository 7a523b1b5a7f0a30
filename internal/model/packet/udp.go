// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"slices"
)

const udpHeader = 8 // bytes

// udp parses a UDP header (RFC 768) at the start of b.
func (p *Packet) udp(b []byte) {
	if len(b) < udpHeader {
		p.short()
		return
	}
	p.ports(b, PortUDP)
	p.Payload = b[udpHeader:]
	p.dns(b)
	sport, dport := p.Value[SPort]-PortUDP, p.Value[DPort]-PortUDP
	size := int(binary.BigEndian.Uint16(b[4:]))
	p.failIf(size < udpHeader || size > len(b) && p.Value[Fragment] == FragmentNone, UDPLength)
	p.failIf(dport == 0, PortZero)
	p.failIf(sport == 0, UDPSourceZero)
	p.failIf(slices.Contains(ReflectorPorts, uint16(sport)), ReflectorSource)
	noChecksum := binary.BigEndian.Uint16(b[6:]) == 0
	p.failIf(noChecksum && p.Value[Family] == FamilyIPv6, UDP6Checksum)
}

// ReflectorPorts are the ports of services that answer small forged requests with large replies, in ascending order. They are the services of US-CERT
// TA14-017A, and similar services that became known later.
var ReflectorPorts = []uint16{
	17,    // quote of the day
	19,    // character generator
	69,    // TFTP
	111,   // portmap
	137,   // NetBIOS
	161,   // SNMP
	389,   // CLDAP
	427,   // SLP
	520,   // RIP
	623,   // IPMI
	1434,  // SQL Server browser
	1900,  // SSDP
	3283,  // Apple remote desktop
	3702,  // WS-Discovery
	5093,  // Sentinel license manager
	5353,  // multicast DNS
	5683,  // CoAP
	10001, // Ubiquiti discovery
	11211, // memcached
	37810, // DVR DHCP discovery
}
