package packet

import (
	"fmt"
	"net/netip"
	"strings"
)

// Spec is a packet as one line of text describes it. It is made by Parse; Frame builds the frame.
//
//	tcp 198.51.100.7:1234 > 192.0.2.1:80 S ttl=3 vlan=10
//	udp [2001:db8::1]:53 > [2001:db8::2]:53 len=128
//	udp 198.51.100.7:999 > 192.0.2.1:53 dns=ANY,example.com,edns:4096
//	icmp 10.0.0.1 > 192.0.2.1 type=8 code=0
//	proto=47 10.0.0.1 > 10.0.0.2
//
// What a line does not say is such that no check fails: a TCP packet is a SYN with the MSS option, an ICMP message an
// echo request, the TTL is 64 (255 for neighbor discovery), the bit against fragmentation is set, checksums are right.
type Spec struct {
	layer        layer
	proto        uint8
	src, dst     netip.Addr // invalid for an ARP packet without addresses
	sport, dport uint16
	flags        uint8 // of TCP
	ports        bool  // sport and dport are given

	set       uint32 // a bit for each given number
	num       [numNumbers]uint32
	moreFrags bool
	checksum  checksumKind
	vlans     []uint16 // outermost first
	sourceMAC [6]byte
	payload   []byte
	dns       *dnsSpec // instead of payload
	state     uint32   // of conntrack
	verified  bool     // the sender of the DNS query is
	ipOptions []byte   // IPv4, not padded
	ext       []int    // IPv6: indices into extensionKinds
	tcpText   string   // TCP options as written; "" for the default
}

// layer says what is built behind the IP header.
type layer uint8

const (
	layerRaw layer = iota // the payload alone
	layerTCP
	layerUDP
	layerICMP // ICMP or ICMPv6
	layerARP  // and no IP header
)

// protocols are the names that a line can start with.
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

// Parse reads the description of one packet. Its errors name the column, from 1, and what is expected there. The
// words are
//
//	PROTO SRC > DST [FLAGS] [key=value ...] [# comment]
//
// PROTO is tcp, udp, icmp, icmpv6, gre, esp, arp (which can do without addresses) or proto=NUMBER, which puts the
// payload alone behind the IP header. FLAGS are tcpdump's letters, FSRPAUEW with . for A, or none. The keys, in any order:
//
//	type=, code=       of ICMP; echo-request and echo-reply are words of their own
//	len=               IP length in bytes, to which the payload is padded with zeros
//	payload=           "text" with Go's escapes and hex digits between bars, as in "GET |0d 0a|"; or 0x and hex digits
//	dns=               a DNS message as payload of udp: ANY,example.com, and behind it in any order id:N, edns:SIZE,
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
//	cut=               bytes that are left of the frame
//	csum=              bad: all checksums are wrong; 0: no L4 checksum
//	smac=              Ethernet source address
//	state=             what conntrack says: new (the default), established, related, invalid or untracked
//	verified           a DNS query whose sender is known to be who it says
//
// A later fragment whose addresses have ports carries, in the place of its data, what would be an L4 header.
func Parse(line string) (Spec, error) {
	tokens, end, err := tokenize(line)
	if err != nil {
		return Spec{}, err
	}
	return parseTokens(tokens, end)
}

// parseTokens reads a packet that ends where end stands.
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

// Packet is what Floodwall sees of the packet.
func (s Spec) Packet() Packet {
	p := Decode(s.Frame())
	p.Value[State] = s.state
	if s.verified && p.Value[DNS] < DNSResponse {
		p.Value[Verified] = 1
	}
	return p
}

// String is the line that Parse reads as s, in one order whatever the order that was written.
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

// has reports whether the line gives n.
func (s *Spec) has(n number) bool { return s.set>>n&1 == 1 }

// get is the value of n, or what it is by default.
func (s *Spec) get(n number, byDefault uint32) uint32 {
	if s.has(n) {
		return s.num[n]
	}
	return byDefault
}

// put sets n.
func (s *Spec) put(n number, value uint32) {
	s.set |= 1 << n
	s.num[n] = value
}
