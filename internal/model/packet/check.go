// SPDX-License-Identifier: Apache-2.0

package packet

import "math/bits"

// Check is a built-in sanity test of a packet that needs no state. When a packet fails several enabled checks, the
// one with the lowest number is the reason.
type Check uint8

// The checks, in the order in which they are reported. The order is that of enum check in bpf/check.h, which a test
// compares.
const (
	Truncated Check = iota
	IPHeader
	VLANDepth
	SourceMAC
	TTLZero
	SourceRoute
	IPOptions
	TinyFragment
	FragmentOverflow
	AtomicFragment
	ExtHeaders
	ExtOrder
	Land
	SourceAddress
	BogonSource
	OwnSource
	NDHopLimit
	TCPHeader
	TCPFlags
	PortZero
	UDPSourceZero
	TCPOptions
	SYNData
	SYNLowPort
	SYNNoMSS
	SYNWindowZero
	ACKZero
	UDPLength
	UDP6Checksum
	ReflectorSource
	ICMPType
	ICMPLarge
	IPProtocol
	IPChecksum
	NumChecks
)

// Profile is a named choice of checks.
type Profile uint8

// The profiles. Each profile has all checks of the profile before it.
const (
	Off      Profile = iota
	Standard         // checks that no legitimate packet can fail
	Strict           // also checks that hardly any legitimate packet fails
	Optional         // in no profile: enabled only if the policy names the check
)

// CheckInfo describes a check, for users.
type CheckInfo struct {
	Name    string  // the name in the policy and in the counters
	Profile Profile // the first profile that has it
	Doc     string  // which packets fail the check, with the source of the rule
}

var checks = [NumChecks]CheckInfo{
	Truncated:        {"truncated", Standard, "a header, or the length that an IP header states, goes past the end of the frame"},
	IPHeader:         {"ip-header", Standard, "IP version, header length or total length that contradict each other (RFC 791, RFC 8200)"},
	VLANDepth:        {"vlan-depth", Standard, "more than two VLAN tags, behind which no rule can look (IEEE 802.1ad stacks two)"},
	SourceMAC:        {"source-mac", Standard, "a group address as Ethernet source (IEEE 802.3, 3.2.3)"},
	TTLZero:          {"ttl-zero", Standard, "TTL or hop limit 0 on arrival (RFC 1122, 3.2.1.7)"},
	SourceRoute:      {"source-route", Standard, "IPv4 source routing options (RFC 7126, 4.3) or an IPv6 type 0 routing header (RFC 5095)"},
	IPOptions:        {"ip-options", Strict, "an IPv4 option other than end, no-operation and router alert, or one of bad length (RFC 7126)"},
	TinyFragment:     {"tiny-fragment", Standard, "a first fragment without its whole L4 header, or one that would overwrite it (RFC 1858, RFC 3128, RFC 7112)"},
	FragmentOverflow: {"fragment-overflow", Standard, "a fragment that ends past 65,535 bytes, the ping of death"},
	AtomicFragment:   {"atomic-fragment", Optional, "an IPv6 fragment header on a whole packet (RFC 6946, RFC 8021)"},
	ExtHeaders:       {"ext-headers", Standard, "more than six IPv6 extension headers"},
	ExtOrder:         {"ext-order", Standard, "an IPv6 hop-by-hop header that is not first, or two fragment headers (RFC 8200, 4.1)"},
	Land:             {"land", Standard, "source address equal to destination address"},
	SourceAddress:    {"source-address", Standard, "a multicast, broadcast or loopback source address (RFC 1122, 3.2.1.3; RFC 4291)"},
	BogonSource:      {"bogon-source", Optional, "a source address that is not globally routed (RFC 6890): for devices that face the Internet only"},
	OwnSource:        {"own-source", Strict, "one of this host's own addresses as source (RFC 2827)"},
	NDHopLimit:       {"nd-hop-limit", Standard, "IPv6 neighbor discovery from off the link: hop limit below 255 (RFC 4861)"},
	TCPHeader:        {"tcp-header", Standard, "a TCP header length below 20 bytes or past the packet"},
	TCPFlags:         {"tcp-flags", Standard, "TCP flags that no state allows: none, SYN+FIN, SYN+RST, FIN without ACK … (kernel nf_conntrack_proto_tcp.c, tcp_valid_flags)"},
	PortZero:         {"port-zero", Standard, "TCP port 0, or UDP destination port 0"},
	UDPSourceZero:    {"udp-source-zero", Strict, "UDP source port 0, to which nobody can answer"},
	TCPOptions:       {"tcp-options", Standard, "a SYN whose TCP option lengths do not fit its header"},
	SYNData:          {"syn-data", Optional, "a SYN that carries data (TCP Fast Open, RFC 7413, does so rightly)"},
	SYNLowPort:       {"syn-low-port", Optional, "a SYN from a port below 1024"},
	SYNNoMSS:         {"syn-no-mss", Strict, "a SYN without the MSS option, which every stack in use sends"},
	SYNWindowZero:    {"syn-window-zero", Strict, "a SYN with window 0"},
	ACKZero:          {"ack-zero", Optional, "ACK flag with acknowledgment number 0"},
	UDPLength:        {"udp-length", Standard, "a UDP length below 8 or past the packet (RFC 768)"},
	UDP6Checksum:     {"udp6-checksum", Strict, "UDP over IPv6 without checksum (RFC 8200, 8.1; tunnels may, RFC 6935)"},
	ReflectorSource:  {"reflector-source", Strict, "UDP from a port of the known amplifiers (US-CERT TA14-017A; not 53 and 123, from which DNS and NTP answer)"},
	ICMPType:         {"icmp-type", Strict, "ICMP source quench, redirect, timestamp, information or address mask (RFC 6633, RFC 6918)"},
	ICMPLarge:        {"icmp-large", Optional, "an ICMP echo request longer than 1,024 bytes"},
	IPProtocol:       {"ip-protocol", Strict, "an IP protocol number that IANA has not assigned"},
	IPChecksum:       {"ip-checksum", Optional, "a wrong IPv4 header checksum (the kernel drops it later anyway)"},
}

// SenderChecks are the checks that test whether the sender is allowed, not whether the packet is valid. If a policy passes replies, a reply passes
// before these checks, because this host has sent a request to its sender.
const SenderChecks CheckSet = 1<<BogonSource | 1<<ReflectorSource

// Info describes c.
func (c Check) Info() CheckInfo { return checks[c] }

// String returns the name of c in the policy and in the counters.
func (c Check) String() string { return checks[c].Name }

// CheckNamed finds a check by its name.
func CheckNamed(name string) (c Check, ok bool) {
	for c = range NumChecks {
		if checks[c].Name == name {
			return c, true
		}
	}
	return 0, false
}

// CheckSet is a set of checks, one bit each.
type CheckSet uint64

// Checks returns the set that profile p enables.
func (p Profile) Checks() CheckSet {
	var s CheckSet
	for c := range NumChecks {
		if checks[c].Profile <= p && p < Optional {
			s = s.With(c)
		}
	}
	return s
}

// Has reports whether c is in s.
func (s CheckSet) Has(c Check) bool { return s>>c&1 == 1 }

// With returns s and c.
func (s CheckSet) With(c Check) CheckSet { return s | 1<<c }

// Without returns s without c.
func (s CheckSet) Without(c Check) CheckSet { return s &^ (1 << c) }

// First returns the check of s that is reported as the reason. It returns false for the empty set.
func (s CheckSet) First() (c Check, ok bool) {
	if s == 0 {
		return 0, false
	}
	return Check(bits.TrailingZeros64(uint64(s))), true
}
