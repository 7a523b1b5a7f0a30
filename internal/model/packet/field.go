// SPDX-License-Identifier: Apache-2.0

package packet

import "fmt"

// Field is a property of a packet that a rule can test. Every field has a small integer domain, [0, Size). If a packet lacks the property, the field
// has a special value: for example, an ICMP message has no port. So the test "not this value" needs no special case in Eval, in generated code or in
// tables.
type Field uint8

// The fields that are read from the frame. The order is that of the members of struct packet in bpf/packet.h, which a
// test compares.
const (
	Proto    Field = iota // IPv4 protocol, or the IPv6 next header after the extension headers that were read
	DPort                 // destination port: TCP n, UDP PortUDP+n, else PortNone
	SPort                 // source port, encoded like DPort
	Family                // FamilyIPv4 or FamilyIPv6
	Flags                 // the TCP flags byte, or FlagsNone
	ICMP                  // type<<8 | code; for ICMPv6, the constant ICMPv6 is added; else ICMPNone
	Length                // IP length in bytes, header included (IPv4 total length; IPv6 payload length + 40)
	TTL                   // IPv4 time to live, IPv6 hop limit
	DSCP                  // differentiated services code point, RFC 2474
	Fragment              // FragmentNone, FragmentFirst or FragmentLater
	VLAN                  // VLAN identifier of the outermost tag in the frame, or VLANNone
	DNS                   // the type in a DNS query over UDP, DNSResponse, DNSOther, DNSMalformed or DNSNone
	Verified              // 1 if the sender of a DNS query has proved its address, else 0
	MSS                   // the value of the first MSS option of a TCP segment with SYN, MSSMissing or MSSNone
	NumFields
)

// State is the only field that is not in the frame. It is the packet's state in connection tracking (conntrack's ctinfo). `ct state` of nft and `-m
// conntrack --ctstate` test the same state. Every packet has one of the states.
const State = NumFields

// NumKeys is the number of all fields, including State.
const NumKeys = State + 1

// Special values of the fields.
const (
	PortUDP  = 1 << 16 // added to a UDP port
	PortNone = 2 << 16 // no port: the packet is neither TCP nor UDP, is a later fragment, or has a truncated header

	FamilyIPv4 = 0
	FamilyIPv6 = 1

	FlagsNone = 256

	ICMPv6   = 1 << 16 // added to type<<8|code of an ICMPv6 message
	ICMPNone = 2 << 16

	FragmentNone  = 0 // a whole packet, or an atomic fragment (RFC 6946)
	FragmentFirst = 1 // offset 0, and more fragments follow
	FragmentLater = 2 // offset above 0: the fragment has no L4 header

	VLANNone = 4096

	DNSResponse  = 65536 // a message with the flag QR: a response
	DNSOther     = 65537 // no error was found, but the message is not a standard query of class IN or ANY
	DNSMalformed = 65538 // not a DNS message, or a message that violates RFC 1035
	DNSNone      = 65539 // not a UDP datagram, or a later fragment

	MSSMissing = 65536 // a segment with SYN that has no MSS option
	MSSNone    = 65537 // not a segment with SYN

	StateNew         = 0 // the first packet of a flow that conntrack has not seen before
	StateEstablished = 1 // of a flow that conntrack has seen packets of, in either direction
	StateRelated     = 2 // begins a flow that another flow has announced, or is an ICMP error about a flow
	StateInvalid     = 3 // belongs to no flow, and cannot begin a flow
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

// Size returns the number of values of f. Every value is less than it.
func (f Field) Size() uint32 { return fields[f].size }

// String returns the policy's key for f.
func (f Field) String() string {
	if f >= NumKeys {
		return fmt.Sprintf("field(%d)", uint8(f))
	}
	return fields[f].name
}
