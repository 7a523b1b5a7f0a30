// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

const (
	udpDNSAt        = udpHeader + dnsHeader
	readOfResponse  = 512 // the number of bytes of a response that are read, including the UDP header
	mostAuthorities = 8   // the number of authority records that are searched for the SOA record
	dnsRCode        = 0x000f
	dnsTypeNS       = 2
	dnsTypeSOA      = 6
	dnsPointer      = 0xc0   // the first byte of a compression pointer (RFC 1035, 4.1.4)
	dnsPointerTo    = 0x3fff // the bits of the offset to which it points, counted from the DNS header
)

// Codes of responses (RFC 1035, 4.1.1).
const (
	DNSNoError  = 0
	DNSServFail = 2
	DNSNXDomain = 3
)

// Types of records (RFC 1035, RFC 3596, RFC 9460).
const (
	DNSTypeAAAA  = 28
	DNSTypeHTTPS = 65
)

// NoZone is the ZoneDepth of a response without a SOA.
const NoZone = -1

// Response is the content of a DNS response about the name in its question. bpf/response.h reads the same fields.
type Response struct {
	Query            // the question; the OPT record is not set
	Type      uint16 // the type in the question
	Labels    int    // the number of labels of the name, without the root
	RCode     uint16 // the lower four bits of the response code
	Answers   uint16 // the number of answer records
	ZoneDepth int    // the number of labels of the owner of the first SOA record in the authority section, 0 for the root; NoZone if no SOA record is found
	Referral  bool   // the response has no answer, and its authority section has an NS record but no SOA record
}

// ReadResponse parses the response in a UDP datagram that includes its header. The slice may have more bytes behind the datagram. The datagram may be
// truncated, but its first 512 bytes must be present. ok is false unless it is a response to exactly one question.
func ReadResponse(datagram []byte) (r Response, ok bool) {
	if len(datagram) < udpHeader {
		return r, false
	}
	length := int(binary.BigEndian.Uint16(datagram[4:]))
	if length <= udpDNSAt || len(datagram) < min(length, readOfResponse) {
		return r, false
	}
	b := datagram[:min(length, readOfResponse)]
	flags := binary.BigEndian.Uint16(b[udpHeader+2:])
	if flags&dnsQR == 0 || flags&dnsOpcode != 0 || binary.BigEndian.Uint16(b[udpHeader+4:]) != 1 {
		return r, false
	}
	name, rest, ok := dnsName(b[udpDNSAt:])
	if !ok || len(rest) < dnsQuestion {
		return r, false
	}
	r.Query = Query{name: name}
	for at := 0; name[at] != 0; at += 1 + int(name[at]) {
		r.Labels++
	}
	r.Type = binary.BigEndian.Uint16(rest)
	r.RCode, r.Answers = flags&dnsRCode, binary.BigEndian.Uint16(b[udpHeader+6:])
	var delegates bool
	r.ZoneDepth, delegates = authority(b, len(b)-len(rest)+dnsQuestion, int(binary.BigEndian.Uint16(b[udpHeader+8:])))
	r.Referral = r.Answers == 0 && delegates
	return r, true
}

// authority searches some records at an offset for a SOA record. depth is the number of labels of its owner, or NoZone if there is none. delegates
// reports whether there is an NS record but no SOA record.
func authority(b []byte, at, records int) (depth int, delegates bool) {
	for range min(records, mostAuthorities) {
		labels, behind, ok := compressedName(b, at)
		if !ok || behind+dnsRecord-1 > len(b) {
			break
		}
		switch binary.BigEndian.Uint16(b[behind:]) {
		case dnsTypeSOA:
			return labels, false
		case dnsTypeNS:
			delegates = true
		}
		at = behind + dnsRecord - 1 + int(binary.BigEndian.Uint16(b[behind+8:]))
	}
	return NoZone, delegates
}

// compressedName parses the name at an offset. The name may end with compression pointers to earlier names. It returns the number of labels, and the
// offset after the name.
func compressedName(b []byte, at int) (labels, behind int, ok bool) {
	for range 128 {
		if at < udpHeader || at+1 >= len(b) {
			return 0, 0, false
		}
		size := int(b[at])
		switch {
		case size == 0:
			if behind == 0 {
				behind = at + 1
			}
			return labels, behind, true
		case size >= dnsPointer:
			to := udpHeader + int(binary.BigEndian.Uint16(b[at:])&dnsPointerTo)
			if behind == 0 {
				behind = at + 2
			}
			if to >= at {
				return 0, 0, false
			}
			at = to
		case size > maxLabel:
			return 0, 0, false
		default:
			labels++
			at += 1 + size
		}
	}
	return 0, 0, false
}
