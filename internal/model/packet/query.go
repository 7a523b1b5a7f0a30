// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Query is the question of a DNS query (RFC 1035, 4.1.2), and its OPT record (RFC 6891).
type Query struct {
	name []byte // in wire format
	opt  []byte // nil if there is no OPT record
}

// Name returns the name in the question, in lower case, with dots between labels, and without the dot at the end. The root is "". Bytes that are not
// printable, and dots and backslashes within labels, become \DDD in decimal (RFC 1035, 5.1). So two different names never have the same text. The
// text after each dot is a parent domain.
func (q Query) Name() string {
	if q.name == nil {
		return ""
	}
	return strings.ToLower(nameText(q.name))
}

// Clone returns a copy of the query that does not share the memory of the packet. The copy has only the name.
func (q Query) Clone() Query { return Query{name: bytes.Clone(q.name)} }

// EDNS reports whether the query has an OPT record as its first additional record.
func (q Query) EDNS() bool { return q.opt != nil }

// UDPSize returns the size in bytes of the largest response over UDP that the sender accepts. It is the size in the OPT record, or 512 if there is no
// OPT record or it states less (RFC 6891, 6.2.3).
func (q Query) UDPSize() uint16 {
	if !q.EDNS() {
		return minUDPSize
	}
	return max(minUDPSize, binary.BigEndian.Uint16(q.opt[3:]))
}

const (
	minUDPSize = 512 // bytes of a DNS message that every client accepts (RFC 1035, 2.3.4)

	// dnsDO is the flag for DNSSEC records in the lower 16 bits of an OPT record's TTL.
	dnsDO = 0x8000
)

// DO reports whether the sender wants DNSSEC records (RFC 3225).
func (q Query) DO() bool { return q.EDNS() && binary.BigEndian.Uint16(q.opt[7:])&dnsDO != 0 }

const (
	ednsOption    = 4  // bytes of an EDNS option before its data: code and length
	ednsCookie    = 10 // code of the COOKIE option
	clientCookie  = 8  // bytes (RFC 7873, 4)
	leastCookies  = 16 // bytes of a client cookie together with the shortest server cookie
	longestCookie = 40 // bytes of a client cookie together with the longest server cookie

	// maxEDNSOptions is the number of options that are read. The kernel's BPF verifier requires a bound.
	maxEDNSOptions = 8
)

// Cookie returns the data of the first COOKIE option (RFC 7873): the client cookie of 8 bytes, either alone or followed by a server cookie of 8 to 32
// bytes. It returns nil if none of the first 8 options is a COOKIE option, or if the data has another length.
func (q Query) Cookie() []byte {
	if !q.EDNS() {
		return nil
	}
	b := q.opt[dnsRecord:]
	for n := 0; n < maxEDNSOptions && len(b) >= ednsOption; n++ {
		size := ednsOption + int(binary.BigEndian.Uint16(b[2:]))
		if size > len(b) {
			return nil
		}
		if binary.BigEndian.Uint16(b) == ednsCookie {
			return validCookie(b[ednsOption:size])
		}
		b = b[size:]
	}
	return nil
}

func validCookie(b []byte) []byte {
	if n := len(b); n == clientCookie || n >= leastCookies && n <= longestCookie {
		return b
	}
	return nil
}
