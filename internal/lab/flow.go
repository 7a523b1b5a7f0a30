// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Flow describes the frames of one kind of traffic. Zero values are the simplest case.
type Flow struct {
	From, To Addresses // both of one family; required

	Proto          Proto // UDP when zero
	SPort, DPort   Ports // for an ICMP echo: identifier and sequence number
	Flags          TCPFlags
	Options        []byte // of TCP, in whole 32-bit words
	ICMPType, Code uint8

	Payload  []byte
	RandomID bool // of UDP: the first two bytes of the payload are random; in a DNS message they are the identifier
	Random   int  // of UDP: the offset of 8 random bytes in the payload, each with 32 values; an even number, 0 for none
	Size     int  // of the frame in bytes, without check sequence: a short payload is padded with zeros

	VLAN      []uint16 // tags, the outermost first; at most two
	TTL       uint8    // or hop limit; 0: 64
	Fragments bool     // IPv4: clears DF ("don't fragment") and gives each packet a random identification
	NoSum     bool     // leaves the checksum of TCP, UDP or ICMP at 0; for UDP over IPv4, 0 means "no checksum"

	SrcMAC, DstMAC net.HardwareAddr // empty: the addresses of the device and of its peer

	Weight float64 // share of a mix, relative to the other flows; 0: 1
}

// Proto is the protocol of a flow's packets.
type Proto uint8

// The protocols, by their IANA numbers. ICMP means ICMPv6 in a flow between IPv6 addresses.
const (
	UDP  Proto = 17
	TCP  Proto = 6
	ICMP Proto = 1
)

// TCPFlags is the flags byte of a TCP header (RFC 9293, 3.1).
type TCPFlags uint8

// The flags.
const (
	FIN TCPFlags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// SYNOptions are the TCP options of a SYN as Linux sends them: maximum segment size 1460, selective acknowledgment,
// timestamps, window scale 7.
var SYNOptions = []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 16, 0, 0, 0, 0, 0, 1, 3, 3, 7}

// Ports is a range of ports, both ends included. Each packet has a random port of the range. The zero value is port 0. If Last is below First, only
// First is used.
type Ports struct{ First, Last uint16 }

// Port returns the range of one port.
func Port(n uint16) Ports { return Ports{n, n} }

// AnyPort contains all ports from 1024 up.
var AnyPort = Ports{1024, 65535}

// Addresses is the source or destination addresses of a flow's packets.
type Addresses struct {
	prefix netip.Prefix
	cycle  bool
	list   []netip.Addr
}

// Addr returns one address.
func Addr(a netip.Addr) Addresses { return Addresses{prefix: netip.PrefixFrom(a, a.BitLen())} }

// In returns a random address of a prefix for each packet.
func In(p netip.Prefix) Addresses { return Addresses{prefix: p.Masked()} }

// Each returns all addresses of a prefix in order. In an IPv6 prefix, the low 64 bits are counted up.
func Each(p netip.Prefix) Addresses { return Addresses{prefix: p.Masked(), cycle: true} }

// Listed returns the addresses of a list, all of one family, repeated in one random order that the source's seed determines. The list must not change
// while the source is in use.
func Listed(list []netip.Addr) Addresses { return Addresses{list: list} }

// MustAddrs parses an address, or a prefix for random addresses, for literals. It panics on a mistake.
func MustAddrs(s string) Addresses {
	if a, err := netip.ParseAddr(s); err == nil {
		return Addr(a)
	}
	return In(netip.MustParsePrefix(s))
}

// first returns one of the addresses; the zero value if there are none.
func (a Addresses) first() netip.Addr {
	if len(a.list) > 0 {
		return a.list[0]
	}
	return a.prefix.Addr()
}

// check returns an error for invalid addresses.
func (a Addresses) check(v6 bool) error {
	if !a.first().IsValid() {
		return errors.New("no addresses")
	}
	for _, addr := range a.list {
		if addr.Is6() != v6 {
			return fmt.Errorf("address %s is of the other family; use one flow for each", addr)
		}
	}
	if a.first().Is6() != v6 {
		return fmt.Errorf("address %s is of the other family; use one flow for each", a.first())
	}
	return nil
}

// check returns an error for an invalid flow, before anything is made from it.
func (f *Flow) check() error {
	v6 := f.From.first().Is6()
	if err := f.From.check(v6); err != nil {
		return fmt.Errorf("from: %w", err)
	}
	if err := f.To.check(v6); err != nil {
		return fmt.Errorf("to: %w", err)
	}
	switch f.Proto {
	case 0, UDP, TCP, ICMP:
	default:
		return fmt.Errorf("protocol %d: only UDP, TCP and ICMP can be generated", f.Proto)
	}
	if f.RandomID && (f.proto() != byte(UDP) || len(f.Payload) < 2) {
		return errors.New("random identifier: must be of UDP with a payload")
	}
	if f.Random != 0 && (f.proto() != byte(UDP) || f.Random < 0 || f.Random%2 != 0 || f.Random+8 > len(f.Payload) || headersBefore(f)+8+f.Random+8 > headerMax) {
		return errors.New("random bytes: must be at an even offset of the payload, of UDP, and in the first 256 bytes of the frame")
	}
	if len(f.Options)%4 != 0 || len(f.Options) > 40 {
		return fmt.Errorf("tcp options of %d bytes: must be whole words, and at most 40 bytes", len(f.Options))
	}
	if len(f.VLAN) > 2 {
		return fmt.Errorf("%d vlan tags: at most two", len(f.VLAN))
	}
	for _, id := range f.VLAN {
		if id > 4095 {
			return fmt.Errorf("vlan %d: must be below 4096", id)
		}
	}
	if f.Weight < 0 {
		return fmt.Errorf("weight %g: must not be negative", f.Weight)
	}
	return nil
}
