// SPDX-License-Identifier: Apache-2.0

package packet

import "strconv"

// option is a word of the notation: key=value, or a word without a value.
type option struct {
	name   string // includes the = if the option has a value
	scope  scope
	parse  func(s *Spec, value string) error
	format func(s *Spec) (value string, given bool)
}

// scope defines which packets can have an option.
type scope struct {
	name string // for messages
	has  func(s *Spec) bool
}

var (
	anyFrame = scope{"any packet", func(*Spec) bool { return true }}
	onlyIP   = scope{"an IP packet", func(s *Spec) bool { return s.layer != layerARP }}
	onlyIPv4 = scope{"an IPv4 packet", func(s *Spec) bool { return s.layer != layerARP && s.src.Is4() }}
	onlyIPv6 = scope{"an IPv6 packet", func(s *Spec) bool { return s.layer != layerARP && s.src.Is6() }}
	onlyTCP  = scope{"a tcp packet", func(s *Spec) bool { return s.layer == layerTCP }}
	onlyUDP  = scope{"a udp packet", func(s *Spec) bool { return s.layer == layerUDP }}
	onlyICMP = scope{"an icmp or icmpv6 packet", func(s *Spec) bool { return s.layer == layerICMP }}
)

// number is the index of an option whose value is a number.
type number uint8

const (
	numType   number = iota // ICMP type
	numCode                 // ICMP code
	numLen                  // IP length in bytes, to which the payload is padded
	numTTL                  // TTL or hop limit
	numDSCP                 // differentiated services code point
	numFrag                 // fragment offset in bytes
	numSeq                  // TCP sequence number
	numAck                  // TCP acknowledgment number
	numWin                  // TCP window, unscaled
	numDoff                 // the TCP data offset that the header states, in units of 4 bytes
	numUDPLen               // the UDP length that the header states
	numIHL                  // the IPv4 header length that the header states, in units of 4 bytes
	numTotLen               // the IP length that the header states; for IPv6 that is 40 more than its field
	numCut                  // number of bytes to which the frame is cut
	numNumbers
)

// options are all options of the notation, in the order in which String writes them.
var options = []option{
	numeric("type", numType, 255, onlyICMP),
	numeric("code", numCode, 255, onlyICMP),
	numeric("len", numLen, maxLength, onlyIP),
	{"payload=", onlyIP, (*Spec).parsePayload, (*Spec).formatPayload},
	{"dns=", onlyUDP, (*Spec).parseDNS, (*Spec).formatDNS},
	numeric("ttl", numTTL, 255, onlyIP),
	numeric("dscp", numDSCP, 63, onlyIP),
	{"vlan=", anyFrame, (*Spec).parseVLANs, (*Spec).formatVLANs},
	{"frag=", onlyIP, (*Spec).parseFrag, (*Spec).formatFrag},
	{"mf", onlyIP, (*Spec).parseMF, (*Spec).formatMF},
	{"ipopts=", onlyIPv4, (*Spec).parseIPOptions, (*Spec).formatIPOptions},
	{"ext=", onlyIPv6, (*Spec).parseExt, (*Spec).formatExt},
	numeric("seq", numSeq, 1<<32-1, onlyTCP),
	numeric("ack", numAck, 1<<32-1, onlyTCP),
	numeric("win", numWin, 65535, onlyTCP),
	{"tcpopts=", onlyTCP, (*Spec).parseTCPOptions, (*Spec).formatTCPOptions},
	numeric("doff", numDoff, 15, onlyTCP),
	numeric("udplen", numUDPLen, 65535, onlyUDP),
	numeric("ihl", numIHL, 15, onlyIPv4),
	numeric("totlen", numTotLen, maxLength, onlyIP),
	numeric("cut", numCut, maxLength, anyFrame),
	{"csum=", onlyIP, (*Spec).parseChecksum, (*Spec).formatChecksum},
	{"smac=", anyFrame, (*Spec).parseSourceMAC, (*Spec).formatSourceMAC},
	{"state=", onlyIP, (*Spec).parseState, (*Spec).formatState},
	{"verified", onlyUDP, (*Spec).parseVerified, (*Spec).formatVerified},
}

// numeric returns the option for n. Its value is a number of at most most.
func numeric(name string, n number, most uint32, has scope) option {
	parse := func(s *Spec, value string) error {
		v, err := parseNumber(value, most)
		s.put(n, v)
		return err
	}
	format := func(s *Spec) (string, bool) {
		return strconv.FormatUint(uint64(s.num[n]), 10), s.has(n)
	}
	return option{name + "=", has, parse, format}
}
