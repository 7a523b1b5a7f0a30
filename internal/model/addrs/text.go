package addrs

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

// errText says that a text is not one of MarshalText.
var errText = errors.New("not the text of a set of addresses")

// MarshalText writes the set for UnmarshalText: in base64 the number of IPv4 ranges, of each the distance from the one
// before and the length, and the IPv6 prefixes in the same manner, all as varints of encoding/binary. A list of random
// addresses takes three to five bytes for each.
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

// UnmarshalText reads what MarshalText has written.
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

// varints reads numbers from the front of bytes.
type varints struct {
	left  []byte
	short bool // there were none left, or what was there is no number
}

// next is the next number, 0 when there is none.
func (r *varints) next() uint64 {
	n, size := binary.Uvarint(r.left)
	if size <= 0 {
		r.short = true
		return 0
	}
	r.left = r.left[size:]
	return n
}

// count is a number of things that take at least so many bytes each.
func (r *varints) count(size int) int {
	n := r.next()
	if n > uint64(len(r.left)/size) {
		r.short = true
		return 0
	}
	return int(n)
}
