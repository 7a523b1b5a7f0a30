// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// maxAligned is the largest size of the table that aligns two lists, in cells.
const maxAligned = 4_000_000

// bothFamilies merges the rules for IPv4 and the rules for IPv6 into one list. A pair of rules with the same tests becomes one rule. The order within
// a family is kept. The order between the families is free, because no packet belongs to both.
func bothFamilies(v4, v6 []flat) (list []flat) {
	if len(v4)*len(v6) > maxAligned {
		v4, v6 = fold(v4), fold(v6)
	}
	for _, j := range aligned(v4, v6) {
		switch {
		case j.b < 0:
			list = append(list, v4[j.a])
		case j.a < 0:
			list = append(list, v6[j.b])
		default:
			list = append(list, together(v4[j.a], v6[j.b]))
		}
	}
	return list
}

// pair contains the index of a rule in each list. An index is -1 if the rule is only in the other list.
type pair struct{ a, b int }

// aligned pairs the rules of two lists that can become one rule. It makes as many pairs as possible without changing the order of either list: a
// longest common subsequence.
func aligned(v4, v6 []flat) (pairs []pair) {
	if (len(v4)+1)*(len(v6)+1) > maxAligned {
		return oneAfterTheOther(len(v4), len(v6))
	}
	keys4, keys6 := familyKeys(v4), familyKeys(v6)
	longest := make([][]int32, len(v4)+1)
	for i := range longest {
		longest[i] = make([]int32, len(v6)+1)
	}
	for i := len(v4) - 1; i >= 0; i-- {
		for j := len(v6) - 1; j >= 0; j-- {
			if longest[i][j] = max(longest[i+1][j], longest[i][j+1]); keys4[i] == keys6[j] {
				longest[i][j] = max(longest[i][j], longest[i+1][j+1]+1)
			}
		}
	}
	i, j := 0, 0
	for i < len(v4) && j < len(v6) {
		switch {
		case keys4[i] == keys6[j] && longest[i][j] == longest[i+1][j+1]+1:
			pairs = append(pairs, pair{i, j})
			i, j = i+1, j+1
		case longest[i+1][j] >= longest[i][j+1]:
			pairs = append(pairs, pair{i, -1})
			i++
		default:
			pairs = append(pairs, pair{-1, j})
			j++
		}
	}
	for ; i < len(v4); i++ {
		pairs = append(pairs, pair{i, -1})
	}
	for ; j < len(v6); j++ {
		pairs = append(pairs, pair{-1, j})
	}
	return pairs
}

func oneAfterTheOther(n, m int) (pairs []pair) {
	for i := range n {
		pairs = append(pairs, pair{i, -1})
	}
	for j := range m {
		pairs = append(pairs, pair{-1, j})
	}
	return pairs
}

// familyKeys returns keys that are equal for rules that can become one for both families.
func familyKeys(list []flat) []string {
	keys := make([]string, len(list))
	for i := range list {
		f := &list[i]
		c := f.Cond
		c.Field[packet.Family] = nil
		b := append([]byte{byte(f.verdict)}, f.over.Key()...)
		if f.over != nil && f.over.Global() {
			b = append(b, f.over.At.String()...) // the families have separate limits, so such rules must not become one rule
		}
		b = append(append(b, 0), f.comment...)
		b = append(append(b, 0), f.name...)
		b = append(b, 0)
		c.Src, b = shapeOf(c.Src, b)
		c.Dst, b = shapeOf(c.Dst, b)
		if v := c.Field[packet.ICMP]; v != nil && !v.Has(packet.ICMPNone) && !c.ManyMessages() {
			c.Field[packet.ICMP] = saved.Only(0) // the messages of the two families have different values, so they are not compared
		}
		keys[i] = string(foldKey(&c, b, noPart))
	}
	return keys
}

// shapeOf removes the addresses from t, and appends its form to b. The addresses of one family do not matter to packets of the other.
func shapeOf(t saved.AddrTest, b []byte) (rest saved.AddrTest, out []byte) {
	for _, a := range []*saved.AddrSet{t.In, t.Out} {
		switch {
		case a == nil:
			b = append(b, '-')
		case a.Local:
			b = append(b, 'l')
		default:
			b = append(b, 'a')
		}
	}
	return saved.AddrTest{}, append(b, 0)
}

// together makes one rule of a, which is for one family, and b, which is for the other.
func together(a, b flat) flat {
	m := a
	m.at = append(m.at[:len(m.at):len(m.at)], b.at...)
	m.wide = a.wide || b.wide
	m.entries = nil
	if a.entries != nil || b.entries != nil {
		m.entries = append(a.list(), b.list()...)
	}
	for f := range m.Field {
		m.Field[f] = a.Field[f].Or(b.Field[f])
	}
	if a.over != nil {
		joint := *a.over
		joint.Per = joint.Per.Both(b.over.Per)
		m.over = &joint
	}
	m.Src = a.Src.Or(b.Src)
	m.Dst = a.Dst.Or(b.Dst)
	if m.Field[packet.Family].Full(packet.Family) {
		m.Field[packet.Family] = nil
	}
	return m
}

// list returns the source addresses of f as entries.
func (f *flat) list() []saved.Entry {
	if f.entries != nil || f.Src.In == nil {
		return f.entries
	}
	return entriesOf(f.Src.In.Ranges)
}

func entriesOf(ranges []netipx.IPRange) (list []saved.Entry) {
	for _, r := range ranges {
		list = append(list, saved.Entry{Addr: r})
	}
	return list
}
