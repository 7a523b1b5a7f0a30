// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
)

// Value is a value of a key: a number in Lo, or an address as an integer of 128 bits, with its high bits in Hi.
type Value struct{ Hi, Lo uint64 }

// Number returns the value of a key that is not an address.
func (v Value) Number() uint32 { return uint32(v.Lo) }

// Addr4 returns the value as an IPv4 address.
func (v Value) Addr4() netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(v.Lo))))
}

// Addr6 returns the value as an IPv6 address.
func (v Value) Addr6() netip.Addr {
	return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, v.Hi), v.Lo)))
}

func valueOf(a netip.Addr) Value {
	if a.Is4() {
		b := a.As4()
		return Value{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return Value{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func number(n uint32) Value { return Value{0, uint64(n)} }

func (v Value) compare(o Value) int { return cmp.Or(cmp.Compare(v.Hi, o.Hi), cmp.Compare(v.Lo, o.Lo)) }

// plus returns v + n. It returns false if the sum is larger than the largest address.
func (v Value) plus(n uint64) (Value, bool) {
	lo, carry := bits.Add64(v.Lo, n, 0)
	hi, carry := bits.Add64(v.Hi, 0, carry)
	return Value{hi, lo}, carry == 0
}

// minus returns v - o. The result must not be negative.
func (v Value) minus(o Value) Value {
	lo, borrow := bits.Sub64(v.Lo, o.Lo, 0)
	hi, _ := bits.Sub64(v.Hi, o.Hi, borrow)
	return Value{hi, lo}
}

// shift returns v shifted right by n bits.
func (v Value) shift(n int) Value {
	if n >= 64 {
		return Value{0, v.Hi >> (n - 64)}
	}
	return Value{v.Hi >> n, v.Lo>>n | v.Hi<<(64-n)}
}

// block returns the first value of the n-th block after v. Each block has 1<<size values.
func (v Value) block(n uint64, size int) Value {
	if size >= 64 {
		return Value{v.Hi + n<<(size-64), v.Lo}
	}
	hi, lo := bits.Mul64(n, 1<<size)
	sum, carry := bits.Add64(v.Lo, lo, 0)
	return Value{v.Hi + hi + carry, sum}
}

// zeros returns the number of trailing zero bits of v; 128 for 0.
func (v Value) zeros() int {
	if v.Lo == 0 {
		return 64 + bits.TrailingZeros64(v.Hi)
	}
	return bits.TrailingZeros64(v.Lo)
}

func larger(a, b Value) Value {
	if a.compare(b) < 0 {
		return b
	}
	return a
}

// span is a range of values, both ends included.
type span struct{ first, last Value }

// normalize sorts spans, and joins those that overlap or touch.
func normalize(list []span) (out []span) {
	slices.SortFunc(list, func(a, b span) int { return a.first.compare(b.first) })
	for _, s := range list {
		if n := len(out); n > 0 {
			before := &out[n-1].last
			behind, more := before.plus(1)
			if !more || s.first.compare(behind) <= 0 {
				*before = larger(*before, s.last)
				continue
			}
		}
		out = append(out, s)
	}
	return out
}
