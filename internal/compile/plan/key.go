// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Key is the field of a packet whose value selects a list in a lookup.
type Key uint8

// The keys.
const (
	Proto Key = iota // the IP protocol
	DPort            // the destination port, of TCP or UDP: values of packet.DPort
	SPort            // the source port, likewise
	Src              // the source address
	Dst              // the destination address
	numKeys
)

// IsAddress reports whether a key is an address. Its values then depend on the family.
func (k Key) IsAddress() bool { return k == Src || k == Dst }

func (k Key) isPort() bool { return k == DPort || k == SPort }

// A rule that allows more ranges of a key, or more protocols, does not take part in lookups by that key.
const (
	mostSpans     = 64
	mostProtocols = 8
)

// valuesOf returns the values of a key in packets that a rule can match, for each address family if the key is an address. ok is false if the rule
// does not test the key, or allows too many values.
func valuesOf(sets []ir.Set, r *ir.Rule, k Key) (values [2][]span, ok bool) {
	switch k {
	case Proto:
		list := match.Protocols(r)
		values[0] = spans(list)
		return values, count(list) <= mostProtocols
	case DPort:
		return portsOf(r, packet.DPort)
	case SPort:
		return portsOf(r, packet.SPort)
	}
	for _, m := range match.Sides(r)[k-Src] {
		if values, ok := addressesOf(sets, m); ok {
			return values, true
		}
	}
	return values, false
}

func spans(list []ranges.Range) (out []span) {
	for _, r := range list {
		out = append(out, span{number(r.First), number(r.Last)})
	}
	return out
}

func count(list []ranges.Range) (n uint32) {
	for _, r := range list {
		n += r.Last - r.First + 1
	}
	return n
}

func portsOf(r *ir.Rule, f packet.Field) (values [2][]span, ok bool) {
	list := match.Values(r, f)
	values[0] = spans(list)
	return values, len(list) > 0 && len(list) <= mostSpans && list[len(list)-1].Last < packet.PortNone
}

func addressesOf(sets []ir.Set, m ir.AddrMatch) (values [2][]span, ok bool) {
	size := 0
	for _, i := range m.Sets {
		if sets[i].Fixed() == nil {
			return values, false
		}
		size += sets[i].Static.Size()
	}
	if m.Not || size > mostSpans {
		return values, false
	}
	for _, i := range m.Sets {
		addSpans(&values, sets[i].Static)
	}
	for family := range values {
		values[family] = normalize(values[family])
	}
	return values, !slices.Contains(values[packet.FamilyIPv4], whole4) && !slices.Contains(values[packet.FamilyIPv6], whole6)
}

// All addresses of a family.
var (
	whole4 = span{Value{}, number(math.MaxUint32)}
	whole6 = span{Value{}, Value{math.MaxUint64, math.MaxUint64}}
)

func addSpans(values *[2][]span, s *addrs.Set) {
	for _, r := range s.V4() {
		values[packet.FamilyIPv4] = append(values[packet.FamilyIPv4], span{number(r.First), number(r.Last)})
	}
	for p := range s.Prefixes() {
		if p.Addr().Is6() {
			r := netipx.RangeOfPrefix(p)
			values[packet.FamilyIPv6] = append(values[packet.FamilyIPv6], span{valueOf(r.From()), valueOf(r.To())})
		}
	}
}
