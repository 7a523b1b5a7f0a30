// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Map maps the values of a key to lists of rules.
type Map struct {
	// Intervals reports whether the elements are ranges of values. Otherwise the elements are blocks of 1<<Size values, each aligned to its size. The
	// lowest Size bits of a packet's value are removed before the lookup.
	Intervals bool
	Size      int
	Elements  []Element // in ascending order; they do not overlap
}

// Element is a range of values, both ends included, that selects a list: an index in Lookup.Lists.
type Element struct {
	First, Last Value
	List        int
}

// blocksPerRule is the largest number of elements that a map of blocks may have for each range of values.
const blocksPerRule = 16

// part is a range of values for which the same rules can match.
type part struct {
	span
	rules []int // in ascending order
}

// end is a value at which the set of rules that can match changes. From this value on, a rule can match if opens is true, and can no longer match if
// opens is false.
type end struct {
	at    Value
	rule  int
	opens bool
}

// parts splits the values of a key at the ends of all ranges for which rules test. ok is false if many rules test for the same values. The parts
// together would then have far more rules than there are.
func (a *arranger) parts(rules []int, k Key, p place, family int) (parts []part, ok bool) {
	ends, most := a.ends(rules, k, p, family)
	var open []int // in ascending order
	held := 0
	for i, e := range ends {
		at, found := slices.BinarySearch(open, e.rule)
		if e.opens {
			open = slices.Insert(open, at, e.rule)
		} else if found {
			open = slices.Delete(open, at, at+1)
		}
		last := most
		if i+1 < len(ends) {
			if ends[i+1].at == e.at {
				continue
			}
			last = ends[i+1].at.minus(number(1))
		}
		if len(open) == 0 {
			continue
		}
		parts = append(parts, part{span{e.at, last}, slices.Clone(open)})
		if held += len(open); held > blocksPerRule*len(rules)+mostSpans {
			return nil, false
		}
	}
	return parts, true
}

// ends returns the ends of all ranges for which rules test, in ascending order. most is the largest value in any of these ranges.
func (a *arranger) ends(rules []int, k Key, p place, family int) (ends []end, most Value) {
	limit := span{Value{}, whole6.last}
	switch {
	case k.isPort() && p.proto == packet.ProtoTCP:
		limit = span{number(0), number(packet.PortUDP - 1)}
	case k.isPort() && p.proto == packet.ProtoUDP:
		limit = span{number(packet.PortUDP), number(packet.PortNone - 1)}
	}
	for _, r := range rules {
		for _, s := range a.values[k][r].of[family] {
			if s.last.compare(limit.first) < 0 || s.first.compare(limit.last) > 0 {
				continue
			}
			if s.last.compare(limit.last) > 0 {
				s.last = limit.last
			}
			most = larger(most, s.last)
			ends = append(ends, end{larger(s.first, limit.first), r, true})
			if behind, ok := s.last.plus(1); ok {
				ends = append(ends, end{behind, r, false})
			}
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return a.at.compare(b.at) })
	return ends, most
}

// lists are the lists of rules that a lookup selects.
type lists struct {
	rules  [][]int
	proto  []int // by list: the IP protocol of its packets, -1 if unknown
	number map[string]int
}

func newLists() *lists { return &lists{number: map[string]int{}} }

// add returns the index of a list. It adds the list if it is new.
func (l *lists) add(rules []int, proto int) int {
	key := binary.AppendVarint(nil, int64(proto))
	for _, r := range rules {
		key = binary.AppendUvarint(key, uint64(r))
	}
	n, ok := l.number[string(key)]
	if !ok {
		n = len(l.rules)
		l.number[string(key)] = n
		l.rules = append(l.rules, rules)
		l.proto = append(l.proto, proto)
	}
	return n
}

// newMap returns the map of parts, or nil if there are none. Adjacent parts share a list while the list has few rules. If the key is Proto, parts do
// not share lists, because the lookups in a list need to know the protocol.
func newMap(parts []part, l *lists, k Key, family int) *Map {
	if len(parts) == 0 {
		return nil
	}
	m := &Map{}
	for len(parts) > 0 {
		n, rules, proto := 1, parts[0].rules, -1
		for ; k != Proto && n < len(parts); n++ {
			both := union(rules, parts[n].rules)
			if len(both) > listRules && !slices.Equal(both, rules) {
				break
			}
			rules = both
		}
		if k == Proto && len(rules) > listRules && parts[0].first == parts[0].last {
			proto = int(parts[0].first.Number())
		}
		list := l.add(rules, proto)
		for _, p := range parts[:n] {
			m.Elements = append(m.Elements, Element{p.first, p.last, list})
		}
		parts = parts[n:]
	}
	m.shape(k, family)
	return m
}

// shape splits the elements into blocks if that does not make too many elements. Otherwise it joins adjacent elements to intervals that are as large
// as possible.
func (m *Map) shape(k Key, family int) {
	width := 0 // the largest possible Size; 0 for ports and protocols, for which all bits are looked up
	if k.IsAddress() {
		width = [...]int{packet.FamilyIPv4: 32, packet.FamilyIPv6: 128}[family]
	}
	m.Size = width
	for _, e := range m.Elements {
		behind, _ := e.Last.plus(1)
		m.Size = min(m.Size, e.First.zeros(), behind.zeros())
	}
	blocks := uint64(0)
	for _, e := range m.Elements {
		n := e.Last.minus(e.First).shift(m.Size)
		if n.Hi > 0 || n.Lo > blocksPerRule*uint64(len(m.Elements)) {
			m.Intervals = true
			break
		}
		blocks += n.Lo + 1
	}
	if m.Intervals = m.Intervals || blocks > blocksPerRule*uint64(len(m.Elements)); m.Intervals {
		m.join()
		return
	}
	var out []Element
	for _, e := range m.Elements {
		for n := range e.Last.minus(e.First).shift(m.Size).Lo + 1 {
			first := e.First.block(n, m.Size)
			out = append(out, Element{first, first.block(1, m.Size).minus(number(1)), e.List})
		}
	}
	m.Elements = out
}

// join merges neighbouring elements that select the same list.
func (m *Map) join() {
	out := m.Elements[:1]
	for _, e := range m.Elements[1:] {
		last := &out[len(out)-1]
		if behind, ok := last.Last.plus(1); ok && behind == e.First && last.List == e.List {
			last.Last = e.Last
			continue
		}
		out = append(out, e)
	}
	m.Elements = out
}

// cost estimates the cost of a lookup in the map, which grows with the number of intervals.
func (m *Map) cost(l *Lookup) int {
	switch {
	case m.Intervals:
		return intervalCost + bits.Len(uint(len(m.Elements)))/2
	case l.Joined():
		return joinedCost
	}
	return hashCost
}

// union merges two ascending lists.
func union(a, b []int) (out []int) {
	out = slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
