package importer

import (
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/packet"
)

// implied is c with the protocol and family that other parts of it imply.
func (c *cond) implied() (field [packet.NumKeys]values) {
	field = c.field
	for _, d := range dependents {
		if need := d.needs(field[d.field]); need != nil {
			field[packet.Proto] = field[packet.Proto].and(need)
		}
	}
	if f := c.families(); f != 0 {
		field[packet.Family] = field[packet.Family].and(familyValues[f])
	}
	return field
}

// covers reports whether c surely holds for all packets that d holds for. What the two cannot say is not looked at.
func (c *cond) covers(d *cond) bool {
	of := d.implied()
	return c.coversAll(d, &of)
}

// coversAll is covers, with what d implies.
func (c *cond) coversAll(d *cond, of *[packet.NumKeys]values) bool {
	for k, v := range c.field {
		if v != nil && !of[k].within(v) {
			return false
		}
	}
	return c.src.covers(d.src) && c.dst.covers(d.dst)
}

// covers reports whether t surely holds for all addresses that u holds for.
func (t addrTest) covers(u addrTest) bool {
	if t.in != nil && (u.in == nil || !t.in.includes(u.in)) {
		return false
	}
	return t.out == nil || u.out != nil && u.out.includes(t.out) || u.in != nil && u.in.apart(t.out)
}

// fixed is the addresses of a that are known, and all reports whether these are all.
func (a *addrSet) fixed() (ranges []netipx.IPRange, all bool) {
	ranges, all = a.ranges, !a.local
	for _, s := range a.sets {
		if s.dynamic || s.problem != "" {
			all = false
			continue
		}
		ranges = append(slices.Clip(ranges), s.ranges...)
	}
	return ranges, all
}

// includes reports whether all addresses of b are surely in a.
func (a *addrSet) includes(b *addrSet) bool {
	if a.equal(b) {
		return true
	}
	have, _ := a.fixed()
	want := b.ranges
	for _, s := range b.sets {
		switch {
		case slices.Contains(a.sets, s):
		case s.dynamic || s.problem != "":
			return false
		default:
			want = append(slices.Clip(want), s.ranges...)
		}
	}
	if b.local && !a.local {
		return false
	}
	return len(want) == 0 || slices.Equal(common(have, want), join(want))
}

// apart reports whether surely no address is in both.
func (a *addrSet) apart(b *addrSet) bool {
	x, all := a.fixed()
	y, allToo := b.fixed()
	return all && allToo && len(common(x, y)) == 0
}
