// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// rule returns a rule that drops the packets of a box, except packets from the sources in except.
func (b *box) rule(name string, ipv6 bool, except []netip.Prefix) *policy.Rule {
	r := &policy.Rule{Name: name, Named: true, Then: policy.Drop}
	if b.dst.IsValid() {
		r.Match.To = []policy.Addr{policy.AddrOf(b.dst)}
	}
	if b.src.IsValid() {
		r.Match.From = []policy.Addr{policy.AddrOf(b.src)}
	}
	for _, p := range b.notDst {
		r.Not.To = append(r.Not.To, policy.AddrOf(p))
	}
	for _, p := range append(slices.Clip(b.notSrc), except...) {
		if p.Addr().Is6() == ipv6 {
			r.Not.From = append(r.Not.From, policy.AddrOf(p))
		}
	}
	for f, values := range b.fields {
		if values == nil {
			continue
		}
		to, f := &r.Match, packet.Field(f)
		switch f {
		case packet.DPort, packet.SPort, packet.Flags, packet.ICMP:
			if contains(values, f.Size()-1) { // packets without the field
				to, values = &r.Not, ranges.Complement(values, f.Size())
			}
		}
		if f == packet.Flags {
			to.Flags = flags(values)
		} else {
			to.Ask(f, values)
		}
	}
	return r
}

func flags(values []ranges.Range) (list []policy.Flags) {
	for _, c := range cubes(values) {
		if c.mask == 0 { // any flags: packets with the lowest flag, and packets without it
			return []policy.Flags{{Value: 1, Mask: 1}, {Mask: 1}}
		}
		list = append(list, policy.Flags{Value: c.value, Mask: c.mask})
	}
	return list
}
