package importer

import (
	"encoding/binary"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/packet"
)

// parts of a cond, in the order in which rules are joined.
const (
	partSrc = int(packet.NumKeys) + iota
	partDst
	noPart
)

var foldOrder = []int{
	noPart, partSrc, partDst, int(packet.DPort), int(packet.ICMP), int(packet.SPort), int(packet.Family),
	int(packet.Proto), int(packet.State), int(packet.Flags), int(packet.TTL), int(packet.Length), int(packet.DSCP),
}

// manyAddrs is how many rules with comments of their own are joined all the same when they differ in an address: such
// is a list, and its comments become those of the entries.
const manyAddrs = 16

// fold makes one rule of those in a row with the same verdict that differ in one part only: their order does not
// matter, as the packet's fate is the same. Those with a limit are in a row only with others of the same limit.
func fold(list []flat) (out []flat) {
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n].verdict == list[i].verdict && list[i+n].over == list[i].over {
			n++
		}
		out = append(out, foldRun(list[i:i+n])...)
		i += n
	}
	return out
}

// foldRun folds rules with the same verdict, until nothing changes.
func foldRun(run []flat) []flat {
	run = bareAll(run)
	for before := 0; before != len(run) && len(run) > 1; {
		before = len(run)
		for _, part := range foldOrder {
			run = foldPart(run, part, true, 2)
		}
		run = foldPart(run, partSrc, false, manyAddrs)
		run = foldPart(run, partDst, false, manyAddrs)
	}
	return run
}

// bareAll is rules with bare conds.
func bareAll(list []flat) []flat {
	list = slices.Clone(list)
	for i := range list {
		list[i].cond = list[i].bare()
	}
	return list
}

// foldPart joins rules that differ in one part. Comments must agree, or not; a group has least members.
func foldPart(run []flat, part int, comments bool, least int) []flat {
	groups := map[string][]int{}
	keys := make([]string, len(run))
	var b []byte
	for i := range run {
		b = b[:0]
		if !run[i].joinable(part) {
			continue
		}
		if comments {
			b = append(append(b, run[i].comment...), 0)
			b = append(append(b, run[i].name...), 0)
		}
		keys[i] = string(run[i].key(b, part))
		groups[keys[i]] = append(groups[keys[i]], i)
	}
	out := run[:0:0]
	for i := range run {
		g := groups[keys[i]]
		switch {
		case keys[i] == "" || len(g) < least:
			out = append(out, run[i])
		case g[0] == i:
			out = append(out, merge(run, g, part))
		}
	}
	return out
}

// joinable reports whether c can be joined with others that differ in part.
func (c *cond) joinable(part int) bool {
	switch part {
	case partSrc:
		return c.src.in != nil
	case partDst:
		return c.dst.in != nil
	case noPart:
		return true
	case int(packet.ICMP):
		return c.field[part] != nil && !c.manyMessages()
	}
	return c.field[part] != nil
}

// key is all of c but one part, in a form that is equal when they are.
func (c *cond) key(b []byte, part int) []byte {
	for f, v := range c.field {
		if f == part {
			continue
		}
		b = v.appendTo(append(b, byte(f), byte(len(v)), byte(len(v)>>8)))
	}
	b = c.src.appendTo(append(b, 'S'), part == partSrc)
	return c.dst.appendTo(append(b, 'D'), part == partDst)
}

func (v values) appendTo(b []byte) []byte {
	for _, s := range v {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, s.first), s.last)
	}
	return b
}

// appendTo appends t, or only what it excludes.
func (t addrTest) appendTo(b []byte, outOnly bool) []byte {
	if !outOnly {
		b = t.in.appendTo(append(b, 'i'))
	}
	return t.out.appendTo(append(b, 'o'))
}

func (a *addrSet) appendTo(b []byte) []byte {
	if a == nil {
		return b
	}
	if a.local {
		b = append(b, 'l')
	}
	for _, r := range a.ranges {
		b = append(r.From().AppendTo(append(b, ' ')), '-')
		b = r.To().AppendTo(b)
	}
	for _, s := range a.sets {
		b = append(append(append(b, '$'), s.scope...), ' ')
		b = append(b, s.name...)
	}
	return append(b, ';')
}

// merge makes one rule of those at the indices g, which differ in one part.
func merge(run []flat, g []int, part int) flat {
	m := run[g[0]]
	m.at = nil
	differ := false
	for _, i := range g {
		m.at = append(m.at, run[i].at...)
		m.wide = m.wide || run[i].wide
		differ = differ || run[i].comment != m.comment
	}
	switch part {
	case partSrc:
		m.src.in = unite(run, g, func(c *cond) *addrSet { return c.src.in })
	case partDst:
		m.dst.in = unite(run, g, func(c *cond) *addrSet { return c.dst.in })
	case noPart:
	default:
		var all values
		for _, i := range g {
			all = append(all, run[i].field[part]...)
		}
		m.field[part] = normalize(slices.Clone(all))
		if m.field[part].full(packet.Field(part)) {
			m.field[part] = nil
		}
	}
	if differ {
		m.entries = noted(run, g, part)
		m.comment = ""
	}
	return m
}

// unite is the union of the sets of addresses of rules.
func unite(run []flat, g []int, of func(*cond) *addrSet) *addrSet {
	u := &addrSet{}
	var ranges []netipx.IPRange
	for _, i := range g {
		a := of(&run[i].cond)
		ranges = append(ranges, a.ranges...)
		u = u.or(&addrSet{sets: a.sets, local: a.local})
	}
	u.ranges = join(ranges)
	return u
}

// noted is the addresses of rules with their comments.
func noted(run []flat, g []int, part int) (list []entry) {
	for _, i := range g {
		in := run[i].src.in
		if part == partDst {
			in = run[i].dst.in
		}
		if run[i].entries != nil {
			list = append(list, run[i].entries...)
			continue
		}
		for _, r := range in.ranges {
			list = append(list, entry{addr: r, comment: run[i].comment})
		}
	}
	return list
}

// bare is c without what other parts of it imply: a protocol that ports need, a family that addresses have.
func (c cond) bare() cond {
	for _, d := range dependents {
		if v := c.field[d.field]; v != nil && d.needs(v) != nil && d.needs(v).within(c.field[packet.Proto]) {
			c.field[packet.Proto] = nil
		}
	}
	if f := c.families(); f != 0 && c.field[packet.Family] != nil && familyValues[f].within(c.field[packet.Family]) {
		c.field[packet.Family] = nil
	}
	return c
}

var familyValues = map[family]values{
	ipv4: only(packet.FamilyIPv4), ipv6: only(packet.FamilyIPv6), ipv4 | ipv6: only(packet.FamilyIPv4, packet.FamilyIPv6),
}

// families are those that addresses and messages of c leave; 0 when they leave any.
func (c cond) families() family {
	all := ipv4 | ipv6
	for _, in := range []*addrSet{c.src.in, c.dst.in} {
		if in != nil && !in.local {
			all &= in.families()
		}
	}
	if v := c.field[packet.ICMP]; v != nil && !v.has(packet.ICMPNone) {
		var of family
		if len(v.and(values{{0, packet.ICMPv6 - 1}})) > 0 {
			of |= ipv4
		}
		if len(v.and(values{{packet.ICMPv6, packet.ICMPNone - 1}})) > 0 {
			of |= ipv6
		}
		all &= of
	}
	if all == ipv4|ipv6 {
		return 0
	}
	return all
}

// families are those of the addresses of a.
func (a *addrSet) families() (f family) {
	for _, r := range a.ranges {
		f |= familyOf(r.From())
	}
	for _, s := range a.sets {
		f |= s.family
	}
	return f
}
