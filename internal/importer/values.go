package importer

import (
	"cmp"
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/packet"
)

// span is a range of values of a field, both ends included.
type span struct{ first, last uint32 }

// values is a set of values of one field: sorted, disjoint, not adjacent. Nil is any value; empty and not nil is none.
type values []span

func only(vs ...uint32) values {
	var out values
	for _, v := range vs {
		out = append(out, span{v, v})
	}
	return normalize(out)
}

// normalize sorts spans and joins those that overlap or touch.
func normalize(spans values) values {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	out := values{}
	for _, s := range spans {
		if n := len(out); n > 0 && s.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, s.last)
			continue
		}
		out = append(out, s)
	}
	return out
}

// not is the complement of v among the values of f.
func (v values) not(f packet.Field) values {
	if v == nil {
		return values{}
	}
	out, next := values{}, uint32(0)
	for _, s := range v {
		if s.first > next {
			out = append(out, span{next, s.first - 1})
		}
		next = s.last + 1
	}
	if next < f.Size() {
		out = append(out, span{next, f.Size() - 1})
	}
	return out
}

// and is what v and w have in common.
func (v values) and(w values) values {
	if v == nil {
		return w
	}
	if w == nil {
		return v
	}
	out := values{}
	for i, j := 0, 0; i < len(v) && j < len(w); {
		if first, last := max(v[i].first, w[j].first), min(v[i].last, w[j].last); first <= last {
			out = append(out, span{first, last})
		}
		if v[i].last < w[j].last {
			i++
		} else {
			j++
		}
	}
	return out
}

// or is what is in v or w.
func (v values) or(w values) values {
	if v == nil || w == nil {
		return nil
	}
	return normalize(slices.Concat(v, w))
}

// has reports whether x is in v.
func (v values) has(x uint32) bool {
	return v == nil || len(v.and(values{{x, x}})) > 0
}

// within reports whether all of v is in w.
func (v values) within(w values) bool { return w == nil || v != nil && slices.Equal(v.and(w), v) }

// count is how many values there are; v is not nil.
func (v values) count() (n int) {
	for _, s := range v {
		n += int(s.last-s.first) + 1
	}
	return n
}

// full reports whether v is every value of f.
func (v values) full(f packet.Field) bool {
	return v == nil || len(v) == 1 && v[0] == span{0, f.Size() - 1}
}

// shifted is v with n added to each value.
func (v values) shifted(n uint32) values {
	out := values{}
	for _, s := range v {
		out = append(out, span{s.first + n, s.last + n})
	}
	return out
}

const maxPort = math.MaxUint16

// Where the values of protocols with ports lie in the domain of packet.DPort.
var (
	tcpPorts = values{{0, maxPort}}
	udpPorts = values{{packet.PortUDP, packet.PortUDP + maxPort}}
)
