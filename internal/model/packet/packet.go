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

	// L4 is what follows the IP header and the extension headers that were read, up to the end of the IP packet or of
	// the frame; nil in later fragments. Payload is the part behind the header of TCP (with options), UDP or ICMP, or all
	// of L4 for other protocols; nil when that header is cut short. Both alias the frame.
	L4, Payload []byte

	// Query is the question of a DNS query, when Value[DNS] is a type.
	Query Query

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
