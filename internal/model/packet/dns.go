// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

const (
	dnsHeader    = 12  // bytes: identifier, flags, four counts (RFC 1035, 4.1.1)
	dnsQuestion  = 4   // bytes: type and class, after the name
	dnsRecord    = 11  // bytes of the shortest record: the name of the root, type, class, TTL, length of the data
	maxLabel     = 63  // bytes of a label (RFC 1035, 2.3.4); larger values are compression pointers or unused types of labels
	maxName      = 255 // bytes of a name including all length bytes, also that of the root (RFC 1035, 2.3.4)
	maxDNSExtras = 2   // additional records of a query: OPT, and a signature (RFC 6891, RFC 8945, RFC 2931)
)

// Parts of the second 16 bits of a DNS header, and values of a question and of an additional record.
const (
	dnsQR          = 0x8000 // response
	dnsOpcode      = 0x7800
	dnsOpcodeShift = 11
	dnsRD          = 0x0100 // recursion desired

	dnsClassIN  = 1
	dnsClassANY = 255
	dnsTypeOPT  = 41
)

// dns parses the DNS message in a UDP datagram. datagram includes the UDP header. The datagram may have any port. The
// field DNS gets the value of the first case in this list that applies. bpf/dns.h has the same order.
//
//  1. DNSMalformed: the UDP length differs from the number of bytes in the packet, or the datagram is fragmented.
//  2. DNSMalformed: fewer than 12 bytes follow the UDP header.
//  3. DNSResponse: QR is set.
//  4. DNSOther: the opcode is not 0.
//  5. DNSMalformed: not exactly one question, any answer or authority record, more than two additional records.
//  6. DNSMalformed: the question is truncated, a label has more than 63 bytes or is a compression pointer, or the name has
//     more than 255 bytes.
//  7. DNSMalformed: the rest of the message does not fit its number of additional records. Without additional records, no
//     byte may follow the question. With additional records, at least 11 bytes must follow. If the first of them is an OPT
//     record (it begins with the name of the root and type 41), it must end within the message. If it is the only one, it
//     must end where the message ends. If there is another one, at least 11 bytes must follow. Additional records of
//     other types are not parsed.
//  8. DNSOther: the class is neither IN nor ANY.
//  9. The type in the question: none of the above applies.
func (p *Packet) dns(datagram []byte) {
	p.Value[DNS] = DNSMalformed
	message := datagram[udpHeader:]
	whole := int(binary.BigEndian.Uint16(datagram[4:])) == len(datagram) && p.Value[Fragment] == FragmentNone
	if !whole || len(message) < dnsHeader {
		return
	}
	switch flags := binary.BigEndian.Uint16(message[2:]); {
	case flags&dnsQR != 0:
		p.Value[DNS] = DNSResponse
	case flags&dnsOpcode != 0:
		p.Value[DNS] = DNSOther
	default:
		p.query(message)
	}
}

// query parses the message of a standard query.
func (p *Packet) query(message []byte) {
	questions, extras := binary.BigEndian.Uint16(message[4:]), binary.BigEndian.Uint16(message[10:])
	answers := binary.BigEndian.Uint32(message[6:]) // the counts of answers and of authority records, 16 bits each
	if questions != 1 || answers != 0 || extras > maxDNSExtras {
		return
	}
	name, rest, ok := dnsName(message[dnsHeader:])
	if !ok || len(rest) < dnsQuestion {
		return
	}
	opt, ok := dnsExtras(rest[dnsQuestion:], int(extras))
	if !ok {
		return
	}
	if class := binary.BigEndian.Uint16(rest[2:]); class != dnsClassIN && class != dnsClassANY {
		p.Value[DNS] = DNSOther
		return
	}
	p.Value[DNS] = uint32(binary.BigEndian.Uint16(rest))
	p.Query = Query{name: name, opt: opt}
}

// dnsName parses the name at the start of b. ok is false if the name does not end within b, or is longer than a limit allows.
func dnsName(b []byte) (name, rest []byte, ok bool) {
	for at := 0; at < len(b) && at < maxName; at += 1 + int(b[at]) {
		if b[at] == 0 {
			return b[:at+1], b[at+1:], true
		}
		if b[at] > maxLabel {
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// dnsExtras parses the first of n additional records at the start of b. It returns the record if it is an OPT record. ok is false if the records do
// not fit into b.
func dnsExtras(b []byte, n int) (opt []byte, ok bool) {
	if n == 0 {
		return nil, len(b) == 0
	}
	if len(b) < dnsRecord {
		return nil, false
	}
	if b[0] != 0 || binary.BigEndian.Uint16(b[1:]) != dnsTypeOPT {
		return nil, true
	}
	size := dnsRecord + int(binary.BigEndian.Uint16(b[9:]))
	if left := len(b) - size; left < 0 || n == 1 && left > 0 || n > 1 && left < dnsRecord {
		return nil, false
	}
	return b[:size], true
}
