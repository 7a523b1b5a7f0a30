// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// This file implements RFC 8955 and RFC 8956 a second time, as simply as possible, for comparison. It parses the bytes of a flow specification and of
// a frame, and shares no code with the package.

// datagram contains the properties of an IP packet that flow specifications test.
type datagram struct {
	ipv6     bool
	src, dst netip.Addr
	proto    byte
	length   int
	dscp     byte
	df       bool
	offset   int // offset of the fragment
	more     bool
	l4       []byte // nil in a later fragment
}

// datagramOf parses a well-formed frame. Like Floodwall, it does not parse beyond an AH header (RFC 4302), because IPsec must check the rest, and the
// RFCs leave this case open. It returns false for a packet that is not IP.
func datagramOf(frame []byte) (d datagram, ok bool) {
	b := frame[12:]
	for bytes.HasPrefix(b, []byte{0x81, 0}) || bytes.HasPrefix(b, []byte{0x88, 0xa8}) {
		b = b[4:]
	}
	kind, b := binary.BigEndian.Uint16(b), b[2:]
	switch kind {
	case 0x0800:
		header := int(b[0]&15) * 4
		d.length = int(binary.BigEndian.Uint16(b[2:]))
		d.dscp, d.proto = b[1]>>2, b[9]
		frag := binary.BigEndian.Uint16(b[6:])
		d.df, d.more, d.offset = frag&0x4000 != 0, frag&0x2000 != 0, int(frag&0x1fff)
		d.src, d.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[header:]
	case 0x86dd:
		d.ipv6 = true
		d.length = 40 + int(binary.BigEndian.Uint16(b[4:]))
		d.dscp = byte(binary.BigEndian.Uint16(b)>>6) & 63
		d.proto = b[6]
		d.src, d.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[40:]
		for d.offset == 0 {
			size := 0
			switch d.proto {
			case 0, 43, 60:
				size = 8 + 8*int(b[1])
			case 44:
				frag := binary.BigEndian.Uint16(b[2:])
				d.offset, d.more, size = int(frag>>3), frag&1 != 0, 8
			}
			if size == 0 {
				break
			}
			d.proto, b = b[0], b[size:]
		}
	default:
		return datagram{}, false
	}
	if d.offset == 0 {
		d.l4 = b
	}
	return d, true
}

// matches reports whether the flow specification, without its length, matches a packet.
func matches(spec []byte, ipv6 bool, d *datagram) bool {
	if d.ipv6 != ipv6 {
		return false
	}
	ports := d.l4 != nil && (d.proto == 6 || d.proto == 17)
	icmp := d.l4 != nil && d.proto == map[bool]byte{false: 1, true: 58}[ipv6]
	for len(spec) > 0 {
		kind := spec[0]
		spec = spec[1:]
		if kind <= 2 {
			bits := int(spec[0])
			spec = spec[1:]
			if ipv6 {
				spec = spec[1:]
			}
			address := map[byte]netip.Addr{1: d.dst, 2: d.src}[kind].AsSlice()
			for i := range bits {
				if (address[i/8]^spec[i/8])>>(7-i%8)&1 != 0 {
					return false
				}
			}
			spec = spec[(bits+7)/8:]
			continue
		}
		var values []uint64
		switch {
		case kind == 3:
			values = []uint64{uint64(d.proto)}
		case kind == 4 && ports:
			values = []uint64{uint64(binary.BigEndian.Uint16(d.l4)), uint64(binary.BigEndian.Uint16(d.l4[2:]))}
		case kind == 5 && ports:
			values = []uint64{uint64(binary.BigEndian.Uint16(d.l4[2:]))}
		case kind == 6 && ports:
			values = []uint64{uint64(binary.BigEndian.Uint16(d.l4))}
		case kind == 7 && icmp:
			values = []uint64{uint64(d.l4[0])}
		case kind == 8 && icmp:
			values = []uint64{uint64(d.l4[1])}
		case kind == 9 && ports && d.proto == 6:
			values = []uint64{uint64(d.l4[12]&15)<<8 | uint64(d.l4[13])}
		case kind == 10:
			values = []uint64{uint64(d.length)}
		case kind == 11:
			values = []uint64{uint64(d.dscp)}
		case kind == 12:
			var bits uint64
			for i, set := range []bool{d.df, d.offset != 0, d.offset == 0 && d.more, d.offset != 0 && !d.more} {
				if set {
					bits |= 1 << i
				}
			}
			values = []uint64{bits}
		}
		any := false
		var size int
		for _, v := range values {
			var holds bool
			holds, size = list(spec, kind == 9 || kind == 12, v, kind == 11)
			any = any || holds
		}
		if !any {
			return false
		}
		spec = spec[size:]
	}
	return true
}

// list evaluates a list of operators for a value. It also returns the length of the list.
func list(b []byte, bitmask bool, data uint64, dscp bool) (result bool, size int) {
	and := true
	for first := true; ; first = false {
		op := b[size]
		n := 1 << (op >> 4 & 3)
		var value uint64
		for _, digit := range b[size+1 : size+1+n] {
			value = value<<8 | uint64(digit)
		}
		size += 1 + n
		if dscp {
			value &= 63
		}
		var holds bool
		if bitmask {
			holds = data&value != 0
			if op&1 != 0 {
				holds = data&value == value
			}
			if op&2 != 0 {
				holds = !holds
			}
		} else {
			holds = op&4 != 0 && data < value || op&2 != 0 && data > value || op&1 != 0 && data == value
		}
		if first || op&0x40 == 0 {
			result, and = result || !first && and, holds
		} else {
			and = and && holds
		}
		if op&0x80 != 0 {
			return result || and, size
		}
	}
}

// parsed is a component for the function before: its type, and its prefix or its bytes.
type parsed struct {
	kind   byte
	prefix netip.Prefix
	value  []byte
}

func parse(spec []byte, ipv6 bool) (all []parsed) {
	for len(spec) > 0 {
		p := parsed{kind: spec[0]}
		spec = spec[1:]
		if p.kind <= 2 {
			bits := int(spec[0])
			spec = spec[1:]
			bytes := make([]byte, 4)
			if ipv6 {
				bytes, spec = make([]byte, 16), spec[1:]
			}
			copy(bytes, spec[:(bits+7)/8])
			address, _ := netip.AddrFromSlice(bytes)
			p.prefix = netip.PrefixFrom(address, bits).Masked()
			spec = spec[(bits+7)/8:]
		} else {
			_, n := list(spec, false, 0, false)
			p.value, spec = spec[:n], spec[n:]
		}
		all = append(all, p)
	}
	return all
}

// before is flow_rule_cmp of RFC 8955, appendix A. first reports whether a has precedence over b. equal reports whether neither has precedence.
func before(a, b []byte, ipv6 bool) (first, equal bool) {
	as, bs := parse(a, ipv6), parse(b, ipv6)
	for i := 0; i < len(as) || i < len(bs); i++ {
		if i == len(as) {
			return false, false
		}
		if i == len(bs) {
			return true, false
		}
		x, y := as[i], bs[i]
		if x.kind != y.kind {
			return x.kind < y.kind, false
		}
		if x.kind <= 2 {
			if x.prefix.Overlaps(y.prefix) {
				if x.prefix.Bits() != y.prefix.Bits() {
					return x.prefix.Bits() > y.prefix.Bits(), false
				}
				continue
			}
			return x.prefix.Addr().Less(y.prefix.Addr()), false
		}
		common := min(len(x.value), len(y.value))
		if c := bytes.Compare(x.value[:common], y.value[:common]); c != 0 {
			return c < 0, false
		}
		if len(x.value) != len(y.value) {
			return len(x.value) > len(y.value), false
		}
	}
	return false, true
}
