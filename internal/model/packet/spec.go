// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"net/netip"
	"strings"
)

// Spec is a packet that a line of text describes. Parse makes a Spec from the line, and Frame builds the frame.
//
//	tcp 198.51.100.7:1234 > 192.0.2.1:80 S ttl=3 vlan=10
//	udp [2001:db8::1]:53 > [2001:db8::2]:53 len=128
//	udp 198.51.100.7:999 > 192.0.2.1:53 dns=ANY,example.com,edns:4096
//	icmp 10.0.0.1 > 192.0.2.1 type=8 code=0
//	proto=47 10.0.0.1 > 10.0.0.2
//
// With the defaults, a packet passes all checks. By default, a TCP packet is a SYN with the MSS option, and an ICMP
// message is an echo request. The TTL is 64 (255 for neighbor discovery), the bit DF is set, and checksums are right.
type Spec struct {
	layer        layer
	proto        uint8
	src, dst     netip.Addr // not valid if an ARP packet has no addresses
	sport, dport uint16
	flags        uint8 // of TCP
	ports        bool  // sport and dport are given

	set       uint32 // one bit for each number that the line gives
	num       [numNumbers]uint32
	moreFrags bool
	checksum  checksumKind
	vlans     []uint16 // outermost first
	sourceMAC [6]byte
	payload   []byte
	dns       *dnsSpec // the payload is this DNS message; nil: it is payload
	state     uint32   // of conntrack
	verified  bool     // the sender of the DNS query is verified
	ipOptions []byte   // IPv4, not padded
	ext       []int    // IPv6: indices into extensionKinds
	tcpText   string   // TCP options as written; "" for the default
}

// layer is the kind of data after the IP header.
type layer uint8

const (
	layerRaw layer = iota // only the payload
	layerTCP
	layerUDP
	layerICMP // ICMP or ICMPv6
	layerARP  // ARP, without an IP header
)

// protocols are the names with which a line can start.
var protocols = []struct {
	name  string
	proto uint8
	layer layer
}{
	{"tcp", ProtoTCP, layerTCP},
	{"udp", ProtoUDP, layerUDP},
	{"icmp", ProtoICMP, layerICMP},
	{"icmpv6", ProtoICMPv6, layerICMP},
	{"gre", 47, layerRaw},
	{"esp", 50, layerRaw},
	{"arp", 0, layerARP},
}

// Parse parses the description of one packet. Its errors have the column, from 1, and the expected text. The words are
//
//	PROTO SRC > DST [FLAGS] [key=value ...] [# comment]
//
// PROTO is tcp, udp, icmp, icmpv6, gre, esp, arp or proto=NUMBER. arp needs no addresses. With proto=NUMBER, the
// payload directly follows the IP header. FLAGS are tcpdump's letters, FSRPAUEW with . for A, or none. The keys, in any order:
//
//	type=, code=       of ICMP; echo-request and echo-reply are words of their own
//	len=               IP length in bytes, to which the payload is padded with zeros
//	payload=           "text" with Go's escapes and hex digits between bars, as in "GET |0d 0a|"; or 0x and hex digits
//	dns=               a DNS message as payload of udp: ANY,example.com, followed in any order by id:N, edns:SIZE,
//	                   do, cookie:HEX, class:N, opcode:N, response
//	ttl=, dscp=        of either family
//	vlan=              one to three identifiers, the outermost first
//	frag=, mf          first, later or the offset in bytes; more fragments
//	ipopts=            IPv4 options in hex
//	ext=               IPv6 extension headers in their order: frag, hbh, dst, rh0, rh2, ah
//	seq=, ack=, win=   of TCP
//	tcpopts=           mss:N, sack, ts, ws:N, nop, eol in their order; none; or hex
//	doff=, ihl=        header lengths that the headers state, in units of 4 bytes
//	udplen=, totlen=   lengths that the headers state; totlen is the IP length in both families
//	cut=               the number of bytes to which the frame is cut
//	csum=              bad: all checksums are wrong; 0: no L4 checksum
//	smac=              Ethernet source address
//	state=             the state in conntrack: new (the default), established, related, invalid or untracked
//	verified           a DNS query whose sender has proved its address
//
// If a line gives ports for a later fragment, the data of the fragment begins with the bytes of an L4 header.
func Parse(line string) (Spec, error) {
	tokens, end, err := tokenize(line)
	if err != nil {
		return Spec{}, err
	}
	return parseTokens(tokens, end)
}

// parseTokens parses the words of a packet. end is the position after the last word, for error messages.
func parseTokens(tokens []token, end token) (Spec, error) {
	p := parser{tokens: tokens, end: end}
	p.spec.sourceMAC = defaultSource
	for _, part := range []func() error{p.protocol, p.addresses, p.options, p.lengths} {
		if err := part(); err != nil {
			return Spec{}, err
		}
	}
	return p.spec, nil
}

// Packet returns the packet as Floodwall parses it.
func (s Spec) Packet() Packet {
	p := Decode(s.Frame())
	p.Value[State] = s.state
	if s.verified && p.Value[DNS] < DNSResponse {
		p.Value[Verified] = 1
	}
	return p
}

// String returns a line that Parse parses as s. The options are always in the same order.
func (s Spec) String() string {
	words := []string{s.protocolName()}
	if s.src.IsValid() {
		words = append(words, s.endpoint(s.src, s.sport), ">", s.endpoint(s.dst, s.dport))
	}
	if s.layer == layerTCP && s.ports {
		words = append(words, formatFlags(s.flags))
	}
	for _, o := range options {
		if value, given := o.format(&s); given {
			words = append(words, o.name+value)
		}
	}
	return strings.Join(words, " ")
}

func (s *Spec) protocolName() string {
	for _, p := range protocols {
		if p.proto == s.proto && p.layer == s.layer {
			return p.name
		}
	}
	return fmt.Sprintf("proto=%d", s.proto)
}

func (s *Spec) endpoint(a netip.Addr, port uint16) string {
	if s.ports {
		return netip.AddrPortFrom(a, port).String()
	}
	return a.String()
}

// has reports whether the line gives a value for n.
func (s *Spec) has(n number) bool { return s.set>>n&1 == 1 }

// get returns the given value of n, or byDefault if the line gives none.
func (s *Spec) get(n number, byDefault uint32) uint32 {
	if s.has(n) {
		return s.num[n]
	}
	return byDefault
}

// put sets the value of n.
func (s *Spec) put(n number, value uint32) {
	s.set |= 1 << n
	s.num[n] = value
}
