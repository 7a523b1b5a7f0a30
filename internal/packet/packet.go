// Package packet says what Floodwall sees in a frame: the fields that rules test and the checks that the frame fails.
// Decode is the reference that the C parser in bpf/ is tested against; Parse and Frame build frames for tests and for
// explain from one line of text.
package packet

import "net/netip"

// Packet is what the rest of Floodwall knows of one frame.
type Packet struct {
	// Kind says how far the frame could be read.
	Kind Kind

	// Src and Dst are valid when Kind is IP. They are never IPv4-mapped IPv6 addresses unless the frame was IPv6.
	Src, Dst netip.Addr

	// Value holds each field's value; it is defined when Kind is IP. Decode leaves State at StateNew: no frame tells.
	Value [NumKeys]uint32

	// Failed holds every check that the frame fails, enabled or not. OwnSource is never in it: only the host knows
	// its addresses.
	Failed CheckSet
}

// Kind says how far a frame could be read.
type Kind uint8

const (
	NotIP     Kind = iota // neither IPv4 nor IPv6: ARP, LLDP, a third VLAN tag … passes, unless a check fails
	Malformed             // claims to be IP but has no readable IP header: no rule can match it, the default decides
	IP                    // addresses and fields are known
)
