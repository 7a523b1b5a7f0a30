// SPDX-License-Identifier: Apache-2.0

package packet

import "net/netip"

// Packet has the parsed content of one frame.
type Packet struct {
	// Kind is how much of the frame could be parsed.
	Kind Kind

	// Src and Dst are valid when Kind is IP. They are never IPv4-mapped IPv6 addresses unless the frame was IPv6.
	Src, Dst netip.Addr

	// Value has the value of each field. It is only valid if Kind is IP. Decode sets State to StateNew, because a frame does not show its state.
	Value [NumKeys]uint32

	// L4 is the data after the IP header and the extension headers, up to the end of the IP packet or of the frame. It is nil in later fragments.
	// Payload is the data after the TCP header (with options), UDP header or ICMP header. For other protocols, Payload is all of L4. If that header
	// is truncated, Payload is nil. Both slices share the memory of the frame.
	L4, Payload []byte

	// Query is the question of a DNS query. It is set if Value[DNS] is a DNS type.
	Query Query

	// Failed has every check that the frame fails, whether it is enabled or not. It never has OwnSource, because only the host knows its own
	// addresses.
	Failed CheckSet
}

// Kind is how much of a frame could be parsed.
type Kind uint8

const (
	NotIP     Kind = iota // neither IPv4 nor IPv6: ARP, LLDP, a third VLAN tag …; passes unless a check fails
	Malformed             // the type is IP, but the IP header is unreadable: no rule can match the packet, so the default decides
	IP                    // addresses and fields were read
)
