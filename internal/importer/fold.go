// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"encoding/binary"
	"fmt"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// The parts of a condition that are not fields.
const (
	partSrc = int(packet.NumKeys) + iota
	partDst
	noPart
)

var foldOrder = []int{
	noPart, partSrc, partDst, int(packet.DPort), int(packet.ICMP), int(packet.SPort), int(packet.Family),
	int(packet.Proto), int(packet.State), int(packet.Flags), int(packet.TTL), int(packet.Length), int(packet.DSCP),
	int(packet.MSS),
}

// manyAddrs is the number of rules from which on rules that differ in an address are joined even if their comments differ. So many rules form a list
// of addresses, and the comments of the rules become comments of the list's entries.
const manyAddrs = 16

// fold joins consecutive rules with the same verdict that differ in only one part. The order of such rules does not matter, because a packet gets the
// same verdict from each.
// Rules with a limit are joined only if they have the same limit.
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

// foldRun joins rules with the same verdict until nothing changes.
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

// bareAll returns the rules with bare conditions.
func bareAll(list []flat) []flat {
	list = slices.Clone(list)
	for i := range list {
		list[i].Cond = bare(list[i].Cond)
	}
	return list
}

// foldPart joins rules that differ in one part. comments says whether their comments must be equal. A group needs at least least rules.
func foldPart(run []flat, part int, comments bool, least int) []flat {
	groups := map[string][]int{}
	keys := make([]string, len(run))
	var b []byte
	for i := range run {
		b = b[:0]
		if !joinable(&run[i].Cond, part) {
			continue
		}
		if comments {
			b = append(append(b, run[i].comment...), 0)
			b = append(append(b, run[i].name...), 0)
		}
		keys[i] = string(foldKey(&run[i].Cond, b, part))
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
func joinable(c *saved.Cond, part int) bool {
	switch part {
	case partSrc:
		return c.Src.In != nil
	case partDst:
		return c.Dst.In != nil
	case noPart:
		return true
	case int(packet.ICMP):
		return c.Field[part] != nil && !c.ManyMessages()
	}
	return c.Field[part] != nil
}

// foldKey encodes all of c except one part. It is equal for equal conditions.
func foldKey(c *saved.Cond, b []byte, part int) []byte {
	for f, v := range c.Field {
		if f == part {
			continue
		}
		b = appendValues(v, append(b, byte(f), byte(len(v)), byte(len(v)>>8)))
	}
	for _, p := range c.Payload {
		b = fmt.Appendf(b, "P%v%s", p.Not, p.String())
	}
	b = appendTest(c.Src, append(b, 'S'), part == partSrc)
	return appendTest(c.Dst, append(b, 'D'), part == partDst)
}

func appendValues(v saved.Values, b []byte) []byte {
	for _, s := range v {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, s.First), s.Last)
	}
	return b
}

// appendTest encodes t, or only the addresses that it excludes.
func appendTest(t saved.AddrTest, b []byte, outOnly bool) []byte {
	if !outOnly {
		b = appendAddrs(t.In, append(b, 'i'))
	}
	return appendAddrs(t.Out, append(b, 'o'))
}

func appendAddrs(a *saved.AddrSet, b []byte) []byte {
	if a == nil {
		return b
	}
	if a.Local {
		b = append(b, 'l')
	}
	for _, r := range a.Ranges {
		b = append(r.From().AppendTo(append(b, ' ')), '-')
		b = r.To().AppendTo(b)
	}
	for _, s := range a.Sets {
		b = append(append(append(b, '$'), s.Scope...), ' ')
		b = append(b, s.Name...)
	}
	return append(b, ';')
}

// merge joins the rules at the indices g, which differ in one part.
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
		m.Src.In = unite(run, g, func(c *saved.Cond) *saved.AddrSet { return c.Src.In })
	case partDst:
		m.Dst.In = unite(run, g, func(c *saved.Cond) *saved.AddrSet { return c.Dst.In })
	case noPart:
	default:
		var all saved.Values
		for _, i := range g {
			all = append(all, run[i].Field[part]...)
		}
		m.Field[part] = saved.Normalize(all)
		if m.Field[part].Full(packet.Field(part)) {
			m.Field[part] = nil
		}
	}
	if differ {
		m.entries = noted(run, g, part)
		m.comment = ""
	}
	return m
}

// unite returns the union of the address sets of rules.
func unite(run []flat, g []int, of func(*saved.Cond) *saved.AddrSet) *saved.AddrSet {
	u := &saved.AddrSet{}
	var ranges []netipx.IPRange
	for _, i := range g {
		a := of(&run[i].Cond)
		ranges = append(ranges, a.Ranges...)
		u = u.Or(&saved.AddrSet{Sets: a.Sets, Local: a.Local})
	}
	u.Ranges = saved.Join(ranges)
	return u
}

// noted returns the addresses of rules with their comments.
func noted(run []flat, g []int, part int) (list []saved.Entry) {
	for _, i := range g {
		in := run[i].Src.In
		if part == partDst {
			in = run[i].Dst.In
		}
		if run[i].entries != nil {
			list = append(list, run[i].entries...)
			continue
		}
		for _, r := range in.Ranges {
			list = append(list, saved.Entry{Addr: r, Comment: run[i].comment})
		}
	}
	return list
}

// bare removes the parts of c that other parts imply: the protocol if there are ports, and the family if there are addresses.
func bare(c saved.Cond) saved.Cond {
	for _, d := range saved.Dependents {
		if v := c.Field[d.Field]; v != nil && d.Needs(v) != nil && d.Needs(v).Within(c.Field[packet.Proto]) {
			c.Field[packet.Proto] = nil
		}
	}
	if f := c.Families(); f != 0 && c.Field[packet.Family] != nil && saved.FamilyValues[f].Within(c.Field[packet.Family]) {
		c.Field[packet.Family] = nil
	}
	return c
}
