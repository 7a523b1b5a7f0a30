// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

// errText is the error for a text that MarshalText did not write.
var errText = errors.New("not the text of a set of addresses")

// MarshalText writes the set for UnmarshalText, in base64. The bytes are varints of encoding/binary: first the number
// of IPv4 ranges, and for each range its distance from the one before and its length; then the IPv6 prefixes in a
// similar form. A list of random addresses takes three to five bytes per address.
func (s *Set) MarshalText() ([]byte, error) {
	b := binary.AppendUvarint(nil, uint64(len(s.v4)))
	last := uint32(0)
	for _, r := range s.v4 {
		b = binary.AppendUvarint(b, uint64(r.First-last))
		b = binary.AppendUvarint(b, uint64(r.Last-r.First))
		last = r.Last
	}
	b = binary.AppendUvarint(b, uint64(len(s.v6)))
	high := uint64(0)
	for _, p := range s.v6 {
		b = binary.AppendUvarint(b, p.hi-high)
		b = binary.AppendUvarint(b, p.lo)
		b = binary.AppendUvarint(b, uint64(p.length))
		high = p.hi
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText reads a text that MarshalText wrote.
func (s *Set) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("%w: %w", errText, err)
	}
	r := varints{left: b}
	*s = Set{}
	last := uint32(0)
	for n := r.count(2); n > 0; n-- {
		first := last + uint32(r.next())
		last = first + uint32(r.next())
		s.v4 = append(s.v4, Range{first, last})
	}
	high := uint64(0)
	for n := r.count(3); n > 0; n-- {
		high += r.next()
		s.v6 = append(s.v6, prefix6{high, r.next(), uint8(r.next())})
	}
	if r.short || len(r.left) > 0 {
		return errText
	}
	return nil
}

// varints reads varints from the start of a byte slice.
type varints struct {
	left  []byte
	short bool // the bytes ended too early, or contained an invalid number
}

// next returns the next number, 0 if there is none.
func (r *varints) next() uint64 {
	n, size := binary.Uvarint(r.left)
	if size <= 0 {
		r.short = true
		return 0
	}
	r.left = r.left[size:]
	return n
}

// count reads the number of items that follow. Each item takes at least size bytes.
func (r *varints) count(size int) int {
	n := r.next()
	if n > uint64(len(r.left)/size) {
		r.short = true
		return 0
	}
	return int(n)
}
