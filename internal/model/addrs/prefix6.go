// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"encoding/binary"
	"net/netip"
)

// prefix6 is an IPv6 prefix: the first and last 8 bytes as big-endian numbers, and the length in bits. The bits after
// the length are 0.
type prefix6 struct {
	hi, lo uint64
	length uint8
}

// prefix6From returns the prefix of the given length that contains the address. The address must not be IPv4.
func prefix6From(a netip.Addr, length int) prefix6 {
	b := a.As16()
	p := prefix6{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), 128}
	return p.cut(uint8(length))
}

// cut returns the prefix of the given length that covers p. The length must not be greater than p's.
func (p prefix6) cut(length uint8) prefix6 {
	if length <= 64 {
		// A shift by 64 gives 0 in Go, which is right for length 0.
		return prefix6{hi: p.hi & (^uint64(0) << (64 - length)), length: length}
	}
	return prefix6{p.hi, p.lo & (^uint64(0) << (128 - length)), length}
}

// covers reports whether all addresses of q are in p.
func (p prefix6) covers(q prefix6) bool { return p.length <= q.length && q.cut(p.length) == p }

// before reports whether p comes before q. Prefixes are ordered by address, and those with the same address by
// length, shorter first.
func (p prefix6) before(q prefix6) bool {
	switch {
	case p.hi != q.hi:
		return p.hi < q.hi
	case p.lo != q.lo:
		return p.lo < q.lo
	}
	return p.length < q.length
}

func (p prefix6) compare(q prefix6) int {
	switch {
	case p == q:
		return 0
	case p.before(q):
		return -1
	}
	return 1
}

func (p prefix6) netip() netip.Prefix {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], p.hi)
	binary.BigEndian.PutUint64(b[8:], p.lo)
	return netip.PrefixFrom(netip.AddrFrom16(b), int(p.length))
}

// aggregate removes each prefix that another one covers, and joins siblings, in place. The prefixes must be sorted.
func aggregate(prefixes []prefix6) []prefix6 {
	out := prefixes[:0]
	for _, p := range prefixes {
		if n := len(out); n > 0 && out[n-1].covers(p) {
			continue
		}
		out = append(out, p)
		// The joined prefix may itself have a sibling before it.
		for n := len(out); n > 1 && siblings(out[n-2], out[n-1]); n-- {
			out[n-2] = out[n-2].cut(out[n-2].length - 1)
			out = out[:n-1]
		}
	}
	return out
}

func siblings(a, b prefix6) bool {
	return a.length == b.length && a.length > 0 && a != b && a.cut(a.length-1) == b.cut(b.length-1)
}

// halves returns the two prefixes that are one bit longer. p must not be a single address.
func (p prefix6) halves() (lower, upper prefix6) {
	lower, upper = p, p
	lower.length++
	upper.length++
	if p.length < 64 {
		upper.hi |= 1 << (63 - p.length)
	} else {
		upper.lo |= 1 << (127 - p.length)
	}
	return lower, upper
}
