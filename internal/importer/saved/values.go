// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Span is a range of values of a field, both ends included.
type Span = ranges.Range

// Values is a set of values of one field. Its spans are sorted, and neither overlap nor touch. Nil means any value. An
// empty set that is not nil means no value.
type Values []Span

// Only returns the set of the given values, which may be in any order.
func Only(vs ...uint32) Values {
	var out Values
	for _, v := range vs {
		out = append(out, Span{First: v, Last: v})
	}
	return Normalize(out)
}

// Normalize sorts spans and joins those that overlap or touch.
func Normalize(spans Values) Values { return ranges.Normalize(append(Values{}, spans...)) }

// Not returns the complement of v among the values of f.
func (v Values) Not(f packet.Field) Values {
	if v == nil {
		return Values{}
	}
	return ranges.Complement(v, f.Size())
}

// And returns the values that are in both v and w.
func (v Values) And(w Values) Values {
	if v == nil {
		return w
	}
	if w == nil {
		return v
	}
	out := Values{}
	for i, j := 0, 0; i < len(v) && j < len(w); {
		if first, last := max(v[i].First, w[j].First), min(v[i].Last, w[j].Last); first <= last {
			out = append(out, Span{First: first, Last: last})
		}
		if v[i].Last < w[j].Last {
			i++
		} else {
			j++
		}
	}
	return out
}

// Or returns the values that are in v or in w.
func (v Values) Or(w Values) Values {
	if v == nil || w == nil {
		return nil
	}
	return Normalize(slices.Concat(v, w))
}

// Has reports whether x is in v.
func (v Values) Has(x uint32) bool {
	return v == nil || len(v.And(Values{{First: x, Last: x}})) > 0
}

// Within reports whether all values of v are in w.
func (v Values) Within(w Values) bool { return w == nil || v != nil && slices.Equal(v.And(w), v) }

// Count returns the number of values. v must not be nil.
func (v Values) Count() (n int) {
	for _, s := range v {
		n += int(s.Last-s.First) + 1
	}
	return n
}

// Full reports whether v has every value of f.
func (v Values) Full(f packet.Field) bool {
	return v == nil || len(v) == 1 && v[0] == Span{First: 0, Last: f.Size() - 1}
}

// Shifted returns v with n added to each value.
func (v Values) Shifted(n uint32) Values {
	out := Values{}
	for _, s := range v {
		out = append(out, Span{First: s.First + n, Last: s.Last + n})
	}
	return out
}

// MaxPort is the largest port number.
const MaxPort = math.MaxUint16

// The values of TCP and UDP ports in the coding of packet.DPort.
var (
	TCPPorts = Values{{First: 0, Last: MaxPort}}
	UDPPorts = Values{{First: packet.PortUDP, Last: packet.PortUDP + MaxPort}}
)

// Below returns the set of values less than n.
func Below(n uint32) Values {
	if n == 0 {
		return Values{}
	}
	return Values{{First: 0, Last: n - 1}}
}
