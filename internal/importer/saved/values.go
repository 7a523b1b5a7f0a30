// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"cmp"
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Span is a range of values of a field, both ends included.
type Span struct{ First, Last uint32 }

// Values is a set of values of one field. Its spans are sorted, and neither overlap nor touch. Nil means any value. An
// empty set that is not nil means no value.
type Values []Span

// Only returns the set of the given values, which may be in any order.
func Only(vs ...uint32) Values {
	var out Values
	for _, v := range vs {
		out = append(out, Span{v, v})
	}
	return Normalize(out)
}

// Normalize sorts spans and joins those that overlap or touch.
func Normalize(spans Values) Values {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	out := Values{}
	for _, s := range spans {
		if n := len(out); n > 0 && s.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, s.Last)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Not returns the complement of v among the values of f.
func (v Values) Not(f packet.Field) Values {
	if v == nil {
		return Values{}
	}
	out, next := Values{}, uint32(0)
	for _, s := range v {
		if s.First > next {
			out = append(out, Span{next, s.First - 1})
		}
		next = s.Last + 1
	}
	if next < f.Size() {
		out = append(out, Span{next, f.Size() - 1})
	}
	return out
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
			out = append(out, Span{first, last})
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
	return v == nil || len(v.And(Values{{x, x}})) > 0
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
	return v == nil || len(v) == 1 && v[0] == Span{0, f.Size() - 1}
}

// Shifted returns v with n added to each value.
func (v Values) Shifted(n uint32) Values {
	out := Values{}
	for _, s := range v {
		out = append(out, Span{s.First + n, s.Last + n})
	}
	return out
}

// MaxPort is the largest port number.
const MaxPort = math.MaxUint16

// The values of TCP and UDP ports in the coding of packet.DPort.
var (
	TCPPorts = Values{{0, MaxPort}}
	UDPPorts = Values{{packet.PortUDP, packet.PortUDP + MaxPort}}
)

// Below returns the set of values less than n.
func Below(n uint32) Values {
	if n == 0 {
		return Values{}
	}
	return Values{{0, n - 1}}
}
