package packet

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Query is the question of a DNS query (RFC 1035, 4.1.2), and what its OPT record says (RFC 6891).
type Query struct {
	name []byte // as it stands in the packet
	opt  []byte // the OPT record; nil when there is none
}

// Name is the name that is asked for, in lower case, its labels separated by dots, without the dot at the end; "" is the
// root. Bytes that are not printable, and dots and backslashes inside of labels, are written \DDD in decimal (RFC 1035,
// 5.1): no two names are written alike, and what stands behind a dot is a name above.
func (q Query) Name() string {
	if q.name == nil {
		return ""
	}
	return strings.ToLower(nameText(q.name))
}

// Clone is a copy that does not stand in the packet. It has the name only.
func (q Query) Clone() Query { return Query{name: bytes.Clone(q.name)} }

// EDNS reports whether the query has an OPT record as its first additional record.
func (q Query) EDNS() bool { return q.opt != nil }

// UDPSize is the size in bytes of the largest response over UDP that the sender says it can take: that of the OPT
// record, or 512 when there is none or it says less (RFC 6891, 6.2.3).
func (q Query) UDPSize() uint16 {
	if !q.EDNS() {
		return minUDPSize
	}
	return max(minUDPSize, binary.BigEndian.Uint16(q.opt[3:]))
}

const (
	minUDPSize = 512 // bytes of a DNS message that every client takes (RFC 1035, 2.3.4)

	// dnsDO is where an OPT record has the flag for DNSSEC records: the first bit of the fourth byte on of its TTL.
	dnsDO = 0x8000
)

// DO reports whether the sender wants DNSSEC records (RFC 3225).
func (q Query) DO() bool { return q.EDNS() && binary.BigEndian.Uint16(q.opt[7:])&dnsDO != 0 }

const (
	ednsOption    = 4  // bytes of an EDNS option before its data: code and length
	ednsCookie    = 10 // code of the COOKIE option
	clientCookie  = 8  // bytes (RFC 7873, 4)
	leastCookies  = 16 // bytes of a client's cookie and the shortest server's
	longestCookie = 40 // and with the longest

	// maxEDNSOptions is how many options are looked at; the kernel's BPF verifier wants a bound.
	maxEDNSOptions = 8
)

// Cookie is the data of the first COOKIE option (RFC 7873): the client's cookie of 8 bytes, alone or with the server's of
// 8 to 32 behind it. It is nil when none of the first 8 options is one, or when its length is none of these.
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
