// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// ErrUntestable is the error for a well-formed flow specification with a condition that Floodwall cannot test.
var ErrUntestable = errors.New("cannot be tested")

// untestable is an ErrUntestable with its own text.
type untestable string

func (u untestable) Error() string        { return string(u) }
func (u untestable) Is(target error) bool { return target == ErrUntestable }

// maxRanges is the largest number of ranges of a component's values. More ranges make the program long, and no upstream router needs so many.
const maxRanges = 64

// values returns the values that a component without a prefix matches: protocols, ports, types, codes, bytes of TCP flags, lengths, code points, or
// values such as packet.FragmentNone. The error is the reason why the component cannot be tested.
func (c *Component) values(ipv6 bool) (list []ranges.Range, err error) {
	if c.Type.prefixed() {
		return nil, nil
	}
	terms, err := c.terms()
	if err != nil {
		return nil, err
	}
	switch c.Type {
	case TCPFlags:
		list, err = flagValues(terms)
	case Fragment:
		list, err = fragmentValues(terms, ipv6)
	case DSCP:
		list, err = dscpValues(terms)
	default:
		list = numericValues(terms, sizes[c.Type])
	}
	if err == nil && len(list) > maxRanges && c.Type != TCPFlags {
		err = untestable(fmt.Sprintf("comes to %d ranges of values, more than %d", len(list), maxRanges))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Type, err)
	}
	return append([]ranges.Range{}, list...), nil // an empty list must not become nil, which means any value
}

// sizes are the numbers of possible values of numeric components, by the component's type.
var sizes = [...]uint32{
	Protocol: 256, Port: packet.PortUDP, DestinationPort: packet.PortUDP, SourcePort: packet.PortUDP, ICMPType: 256, ICMPCode: 256,
	Length: 65536, DSCP: 64,
}

// numericValues returns the numbers below size that match terms. AND has a higher precedence than OR, and the AND bit of the first term is ignored
// (RFC 8955, 4.2.1.1).
func numericValues(terms []term, size uint32) []ranges.Range {
	var all, group []ranges.Range
	for i, t := range terms {
		if i > 0 && t.and() {
			group = ranges.Common(group, t.numbers(size), size)
			continue
		}
		all, group = append(all, group...), t.numbers(size)
	}
	return ranges.Normalize(append(all, group...))
}

// numbers returns the numbers below size that match one term.
func (t term) numbers(size uint32) []ranges.Range {
	var list []ranges.Range
	last := uint64(size) - 1
	if t.op&opLess != 0 && t.value > 0 {
		list = append(list, ranges.Span(0, uint32(min(t.value-1, last))))
	}
	if t.op&opEqual != 0 && t.value <= last {
		list = append(list, ranges.Span(uint32(t.value), uint32(t.value)))
	}
	if t.op&opGreater != 0 && t.value < last {
		list = append(list, ranges.Span(uint32(t.value)+1, uint32(last)))
	}
	return ranges.Normalize(list)
}

// dscpValues returns the code points that match terms. A value has one byte, of which only the lower six bits count (RFC 8955, 4.2.2.11).
func dscpValues(terms []term) ([]ranges.Range, error) {
	for i := range terms {
		if terms[i].bytes != 1 {
			return nil, errors.New("has a value of more than one byte")
		}
		terms[i].value &= 63
	}
	return numericValues(terms, sizes[DSCP]), nil
}

// masked reports whether data matches bitmask terms.
func masked(terms []term, data uint64) bool {
	var any, group bool
	for i, t := range terms {
		holds := data&t.value != 0
		if t.op&opMatch != 0 {
			holds = data&t.value == t.value
		}
		holds = holds != (t.op&opNot != 0)
		if i > 0 && t.and() {
			group = group && holds
			continue
		}
		any, group = any || group, holds
	}
	return any || group
}

// reservedFlags are bits in byte 13 of the TCP header that Floodwall cannot test. The upper half of that byte, the data offset, counts as 0 (RFC
// 8955, 4.2.2.9).
const reservedFlags = 0x0f00

// flagValues returns the values of packet.Flags that match terms.
func flagValues(terms []term) (list []ranges.Range, err error) {
	for _, t := range terms {
		switch {
		case t.bytes > 2:
			return nil, errors.New("has a value of more than two bytes")
		case t.value&reservedFlags != 0:
			return nil, untestable("asks for reserved bits, which cannot be tested")
		}
	}
	for v := range uint32(packet.FlagsNone) {
		if masked(terms, uint64(v)) {
			list = append(list, ranges.Span(v, v))
		}
	}
	return ranges.Normalize(list), nil
}

// The bits of a fragment component (RFC 8955, 4.2.2.12).
const (
	fragDF    = 1 // the don't fragment bit
	fragIs    = 2 // a fragment other than the first
	fragFirst = 4
	fragLast  = 8
)

// fragmentValues returns the values of packet.Fragment that match terms. Floodwall cannot distinguish the last fragment from earlier ones, and cannot
// test the don't fragment bit. A condition that depends on either is an error. IPv6 has no such bit (RFC 8956, 3.6).
func fragmentValues(terms []term, ipv6 bool) (list []ranges.Range, err error) {
	for _, t := range terms {
		if t.bytes != 1 {
			return nil, errors.New("has a value of more than one byte")
		}
	}
	for value, forms := range [...][]uint64{
		packet.FragmentNone:  {0},
		packet.FragmentFirst: {fragFirst},
		packet.FragmentLater: {fragIs, fragIs | fragLast},
	} {
		holds := masked(terms, forms[0])
		for _, data := range forms {
			if masked(terms, data) != holds || !ipv6 && masked(terms, data|fragDF) != holds {
				return nil, untestable("tells the last fragment from others, or asks for the bit against fragmentation, which cannot be tested")
			}
		}
		if holds {
			list = append(list, ranges.Span(uint32(value), uint32(value)))
		}
	}
	return ranges.Normalize(list), nil
}
