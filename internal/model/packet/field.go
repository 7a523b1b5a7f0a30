package packet

import "fmt"

// Field names one property of a packet that a rule can test. Every field has a small integer domain, [0, Size), in
// which the properties a packet does not have (the port of an ICMP message) are values of their own; so "not this
// value" needs no special case, in Eval, in generated code or in tables.
type Field uint8

// The fields that are read from the frame. The order is that of the members of struct packet in bpf/packet.h, which a
// test compares.
const (
	Proto    Field = iota // IPv4 protocol, or the IPv6 next header after the extension headers that were read
	DPort                 // destination port: TCP n, UDP PortUDP+n, else PortNone
	SPort                 // source port, coded like DPort
	Family                // FamilyIPv4 or FamilyIPv6
	Flags                 // the TCP flags byte, or FlagsNone
	ICMP                  // type<<8 | code; ICMPv6 adds ICMPv6; else ICMPNone
	Length                // IP length in bytes, header included (IPv4 total length; IPv6 payload length + 40)
	TTL                   // IPv4 time to live, IPv6 hop limit
	DSCP                  // differentiated services code point, RFC 2474
	Fragment              // FragmentNone, FragmentFirst or FragmentLater
	VLAN                  // VLAN identifier of the outermost tag in the frame, or VLANNone
	DNS                   // the type a DNS query in UDP asks for, DNSResponse, DNSOther, DNSMalformed or DNSNone
	Verified              // 1 when the sender of a DNS query is known to be who it says, else 0
	MSS                   // the size in the first MSS option of a TCP segment with SYN, MSSMissing or MSSNone
	NumFields
)

// State is the field that no frame carries: what connection tracking knows of the packet (conntrack's ctinfo, as `ct
// state` of nft and `-m conntrack --ctstate` test it). A packet always has one of the states.
const State = NumFields

// NumKeys is the number of all fields.
const NumKeys = State + 1

// Values with a meaning of their own.
const (
	PortUDP  = 1 << 16 // added to a UDP port
	PortNone = 2 << 16 // no port: neither TCP nor UDP, a later fragment, or a header cut short

	FamilyIPv4 = 0
	FamilyIPv6 = 1

	FlagsNone = 256

	ICMPv6   = 1 << 16 // added to type<<8|code of an ICMPv6 message
	ICMPNone = 2 << 16

	FragmentNone  = 0 // a whole packet, or an atomic fragment (RFC 6946)
	FragmentFirst = 1 // offset 0, more to come
	FragmentLater = 2 // offset above 0: carries no L4 header

	VLANNone = 4096

	DNSResponse  = 65536 // says that it is a response
	DNSOther     = 65537 // well-formed as far as it was read, but no standard query of class IN or ANY
	DNSMalformed = 65538 // no DNS message, or one that breaks RFC 1035
	DNSNone      = 65539 // no UDP datagram, or a later fragment

	MSSMissing = 65536 // a segment with SYN that has no such option
	MSSNone    = 65537 // no segment with SYN

	StateNew         = 0 // the first packet of a flow that conntrack does not know yet
	StateEstablished = 1 // of a flow that has seen packets, in either direction
	StateRelated     = 2 // begins a flow that another announced, or an ICMP error about one
	StateInvalid     = 3 // of no flow, and cannot begin one
	StateUntracked   = 4 // exempt from tracking
)

var fields = [NumKeys]struct {
	name string
	size uint32
}{
	Proto:    {"proto", 256},
	DPort:    {"port", PortNone + 1},
	SPort:    {"sport", PortNone + 1},
	Family:   {"family", 2},
	Flags:    {"flags", FlagsNone + 1},
	ICMP:     {"icmp", ICMPNone + 1},
	Length:   {"length", 1 << 16},
	TTL:      {"ttl", 256},
	DSCP:     {"dscp", 64},
	Fragment: {"fragment", 3},
	VLAN:     {"vlan", VLANNone + 1},
	DNS:      {"dns", DNSNone + 1},
	Verified: {"verified", 2},
	MSS:      {"mss", MSSNone + 1},
	State:    {"state", StateUntracked + 1},
}

// Size is the number of values of f: a packet's value is below it.
func (f Field) Size() uint32 { return fields[f].size }

// String is the policy's key for f.
func (f Field) String() string {
	if f >= NumKeys {
		return fmt.Sprintf("field(%d)", uint8(f))
	}
	return fields[f].name
}
