// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Implied returns the fields of c with the protocol and family that other parts imply.
func (c *Cond) Implied() (field [packet.NumKeys]Values) {
	field = c.Field
	for _, d := range Dependents {
		if need := d.Needs(field[d.Field]); need != nil {
			field[packet.Proto] = field[packet.Proto].And(need)
		}
	}
	if c.AsksMSS() {
		field[packet.Proto] = field[packet.Proto].And(Only(ProtoTCP))
	}
	if f := c.Families(); f != 0 {
		field[packet.Family] = field[packet.Family].And(FamilyValues[f])
	}
	return field
}

// Covers reports whether c certainly holds for all packets that d holds for. It ignores the unknown parts of both.
func (c *Cond) Covers(d *Cond) bool {
	of := d.Implied()
	return c.CoversAll(d, &of)
}

// CoversAll reports the same as Covers. of contains the implied fields of d, which the caller has computed.
func (c *Cond) CoversAll(d *Cond, of *[packet.NumKeys]Values) bool {
	for k, v := range c.Field {
		if v != nil && !of[k].Within(v) {
			return false
		}
	}
	for _, p := range c.Payload {
		if !slices.ContainsFunc(d.Payload, p.same) {
			return false
		}
	}
	return c.Src.covers(d.Src) && c.Dst.covers(d.Dst)
}

// covers reports whether t certainly holds for all addresses that u holds for.
func (t AddrTest) covers(u AddrTest) bool {
	if t.In != nil && (u.In == nil || !t.In.includes(u.In)) {
		return false
	}
	return t.Out == nil || u.Out != nil && u.Out.includes(t.Out) || u.In != nil && u.In.apart(t.Out)
}

// fixed returns the known addresses of a. all reports whether a has no other addresses.
func (a *AddrSet) fixed() (ranges []netipx.IPRange, all bool) {
	ranges, all = a.Ranges, !a.Local
	for _, s := range a.Sets {
		if s.Dynamic || s.Problem != "" {
			all = false
			continue
		}
		ranges = append(slices.Clip(ranges), s.Ranges...)
	}
	return ranges, all
}

// includes reports whether all addresses of b are certainly in a.
func (a *AddrSet) includes(b *AddrSet) bool {
	if a.equal(b) {
		return true
	}
	have, _ := a.fixed()
	want := b.Ranges
	for _, s := range b.Sets {
		switch {
		case slices.Contains(a.Sets, s):
		case s.Dynamic || s.Problem != "":
			return false
		default:
			want = append(slices.Clip(want), s.Ranges...)
		}
	}
	if b.Local && !a.Local {
		return false
	}
	return len(want) == 0 || slices.Equal(Common(have, want), Join(want))
}

// apart reports whether it is certain that no address is in both a and b.
func (a *AddrSet) apart(b *AddrSet) bool {
	x, all := a.fixed()
	y, allToo := b.fixed()
	return all && allToo && len(Common(x, y)) == 0
}

// FamilyValues are the values of packet.Family for each family.
var FamilyValues = map[Family]Values{
	IPv4: Only(packet.FamilyIPv4), IPv6: Only(packet.FamilyIPv6), IPv4 | IPv6: Only(packet.FamilyIPv4, packet.FamilyIPv6),
}

// Families returns the families that the addresses and messages of c allow. It returns 0 when they allow any family.
func (c Cond) Families() Family {
	all := IPv4 | IPv6
	for _, in := range []*AddrSet{c.Src.In, c.Dst.In} {
		if in != nil && !in.Local {
			all &= in.families()
		}
	}
	if v := c.Field[packet.ICMP]; v != nil && !v.Has(packet.ICMPNone) {
		var of Family
		if len(v.And(Values{{First: 0, Last: packet.ICMPv6 - 1}})) > 0 {
			of |= IPv4
		}
		if len(v.And(Values{{First: packet.ICMPv6, Last: packet.ICMPNone - 1}})) > 0 {
			of |= IPv6
		}
		all &= of
	}
	if all == IPv4|IPv6 {
		return 0
	}
	return all
}

// families returns the families of the addresses of a.
func (a *AddrSet) families() (f Family) {
	for _, r := range a.Ranges {
		f |= familyOf(r.From())
	}
	for _, s := range a.Sets {
		f |= s.Family
	}
	return f
}
