// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Word is a test of up to 32 adjacent bits in an IP header: the Width bits from Bit on have a value in Values.
type Word struct {
	Bit, Width int
	Values     Values
}

// MaskedWord returns the word that a mask selects in the four bytes at offset. low is the number of bits by which a value must be shifted to the left
// to align with the mask. ok is false when the bits of the mask are not adjacent.
func MaskedWord(offset int, mask uint32) (w Word, low int, ok bool) {
	low = bits.TrailingZeros32(mask)
	w = Word{Bit: 8*offset + bits.LeadingZeros32(mask), Width: bits.OnesCount32(mask)}
	return w, low, mask != 0 && w.Width == 32-low-bits.LeadingZeros32(mask)
}

// headerFields are the fields of IP headers by their position (RFC 791, 3.1; RFC 8200, 3).
var headerFields = map[Family]map[[2]int]packet.Field{
	IPv4: {{8, 6}: packet.DSCP, {16, 16}: packet.Length, {64, 8}: packet.TTL, {72, 8}: packet.Proto},
	IPv6: {{4, 6}: packet.DSCP, {32, 16}: packet.Length, {56, 8}: packet.TTL, {48, 8}: packet.Proto},
}

const ipv6Header = 40

// FirstHeader is the remark that a rule for IPv6 tests the first header, and the policy tests the protocol after all extension headers.
const FirstHeader = "it asks for the type of the first header, and the policy for that behind all extension headers"

// Cond returns the condition that is equivalent to a test of a word of the IP header. ok is false when the policy has no key for it.
func (w Word) Cond(f Family) (c Cond, ok bool) {
	if field, known := headerFields[f][[2]int{w.Bit, w.Width}]; known {
		v := w.Values
		if field == packet.Length && f == IPv6 {
			v = v.shifted(ipv6Header)
		}
		if field == packet.Proto && f == IPv6 {
			c = c.Narrowed(FirstHeader)
		}
		return c.With(field, v), true
	}
	if f != IPv4 {
		return c, false
	}
	first := len(w.Values) == 1 && w.Values[0] == Span{}
	switch {
	case w.Bit == 51 && w.Width == 13 && first: // the offset of a fragment
		return c.With(packet.Fragment, Only(packet.FragmentNone, packet.FragmentFirst)), true
	case w.Bit == 51 && w.Width == 13 && len(w.Values) == 1 && w.Values[0] == Span{First: 1, Last: 1<<13 - 1}:
		return c.With(packet.Fragment, Only(packet.FragmentLater)), true
	case w.Bit == 96:
		return c.From(w.addresses()), true
	case w.Bit == 128:
		return c.To(w.addresses()), true
	}
	return c, false
}

func (v Values) shifted(by uint32) (out Values) {
	for _, s := range v {
		out = append(out, Span{First: s.First + by, Last: s.Last + by})
	}
	return out
}

// addresses returns the IPv4 addresses that begin with one of the values.
func (w Word) addresses() AddrTest {
	var ranges []netipx.IPRange
	rest := 32 - w.Width
	for _, s := range w.Values {
		var first, last [4]byte
		binary.BigEndian.PutUint32(first[:], s.First<<rest)
		binary.BigEndian.PutUint32(last[:], s.Last<<rest|1<<rest-1)
		ranges = append(ranges, netipx.IPRangeFrom(netip.AddrFrom4(first), netip.AddrFrom4(last)))
	}
	return AddrTest{In: &AddrSet{Ranges: Join(ranges)}}
}
