// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// classes is the content of the tables of addresses, proved for every address: the class of each address, and the sets that contain the addresses of
// each class.
type classes struct {
	asked  [][]int        // lists of static sets that rules test
	number map[string]int // number of each list
	vector map[uint16]int // for each class, the lists that contain the class's addresses, as an index in vectors
	family [2]map[uint16]bool
	sorted [2][]uint16
	sample [2]map[uint16]wide // an address of each class
	passes [2][]wide          // addresses of class 0 that the filters pass
	first4 [256]bool          // first bytes of IPv4 addresses that have a class other than 0

	vectors []string       // one byte for each list: 1 if the list contains the addresses
	known   map[string]int // the index in vectors of each text

	hosts struct{ Key, Factor, Wide, Narrow, Filter uint32 }

	addresses int // number of addresses that were looked up
}

// errTable is the error for a mistake in the tables. It has an address that shows the mistake.
type errTable struct {
	addr  netip.Addr
	class uint16
	want  string
}

func (e *errTable) Error() string {
	return fmt.Sprintf("the tables say class %d of the address %s, whose sets are others than those of other addresses of that class (%s)", e.class, e.addr, e.want)
}

func key(sets []int) string { return fmt.Sprint(sets) }

// proveTables reads the class of all addresses, and compares the class with the sets of a program. The tables can only change at boundaries of sets,
// of lines and of prefixes. So one address is checked for all addresses between two boundaries.
func proveTables(p *ir.Program, t *tables) (*classes, error) {
	c := &classes{number: map[string]int{}, vector: map[uint16]int{}, known: map[string]int{}}
	c.family[0], c.family[1] = map[uint16]bool{0: true}, map[uint16]bool{0: true}
	c.sample[0], c.sample[1] = map[uint16]wide{}, map[uint16]wide{}
	used := map[int][]int{} // the lists that contain a set
	for i := range p.Rules {
		moved, _ := movedSources(p, &p.Rules[i])
		for _, a := range slices.Concat(p.Rules[i].Src, p.Rules[i].Dst) {
			var static []int
			for _, s := range a.Sets {
				if p.Sets[s].Dynamic == nil {
					static = append(static, s)
				}
			}
			if _, ok := c.number[key(static)]; ok || len(static) == 0 || len(moved) > 0 {
				continue
			}
			n := len(c.asked)
			c.number[key(static)] = n
			c.asked = append(c.asked, static)
			for _, s := range static {
				used[s] = append(used[s], n)
			}
		}
	}
	c.hosts.Key, c.hosts.Factor, c.hosts.Filter = t.number("hosts4_key"), t.number("hosts4_factor"), t.number("hosts4_filter")
	c.hosts.Wide, c.hosts.Narrow = t.number("hosts4_wide"), t.number("hosts4_narrow")
	err := errors.Join(c.prove4(p, t, used), c.prove6(p, t, used))
	if err == nil {
		c.findPassing(t)
	}
	return c, err
}

// findPassing finds an address of class 0 in each family that passes the filters in front of the tables. z3 cannot find such an address, because the
// filters are hashes.
func (c *classes) findPassing(t *tables) {
	const tries = 1 << 22
	for i := range uint32(tries) {
		a := i * 0x9e3779b1
		if len(c.passes[0]) == 0 && len(t.memory[image.Filter4]) > 0 && t.inFilter4(a) && t.class4(a) == 0 {
			c.passes[0] = append(c.passes[0], wide{0, uint64(a)})
		}
		if w := (wide{uint64(a) << 32, 1}); len(c.passes[1]) == 0 && len(t.memory[image.Filter6]) > 0 && t.inFilter6(a) && t.class6(w) == 0 {
			c.passes[1] = append(c.passes[1], w)
		}
	}
}

// vectorOf returns the index of the vector of lists for addresses in these sets.
func (c *classes) vectorOf(used map[int][]int, sets map[int]int) int {
	text := make([]byte, len(c.asked))
	for s, n := range sets {
		if n > 0 {
			for _, list := range used[s] {
				text[list] = 1
			}
		}
	}
	if i, ok := c.known[string(text)]; ok {
		return i
	}
	c.known[string(text)] = len(c.vectors)
	c.vectors = append(c.vectors, string(text))
	return len(c.vectors) - 1
}

// see records that addresses with a vector of lists have a class. It reports whether the same class always has the same vector.
func (c *classes) see(v6 bool, class uint16, vector int) bool {
	c.addresses++
	if seen, ok := c.vector[class]; ok && seen != vector {
		return false
	}
	c.vector[class] = vector
	c.family[flag(v6)][class] = true
	return true
}

// show records an example address of a class, for counterexamples.
func (c *classes) show(v6 bool, class uint16, a wide) {
	if _, ok := c.sample[flag(v6)][class]; !ok {
		c.sample[flag(v6)][class] = a
	}
}

// edge is a place where a set begins, or where a set has ended just before.
type edge struct {
	at    wide
	set   int
	enter int // 1 at the begin of a set, -1 after its end
}

// interval is a range of addresses that are in the same sets.
type interval struct {
	first, last wide
	vector      int
}

// sweep calls do with each range between two edges of a family, in order.
func (c *classes) sweep(edges []edge, used map[int][]int, end wide, do func(interval) error) error {
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at.hi, b.at.hi), cmp.Compare(a.at.lo, b.at.lo)) })
	in := map[int]int{}
	at := wide{}
	for i := 0; ; {
		for i < len(edges) && edges[i].at == at {
			if in[edges[i].set] += edges[i].enter; in[edges[i].set] == 0 {
				delete(in, edges[i].set)
			}
			i++
		}
		last := end
		if i < len(edges) {
			last = edges[i].at.before()
		}
		if err := do(interval{at, last, c.vectorOf(used, in)}); err != nil {
			return err
		}
		if last == end {
			return nil
		}
		at = edges[i].at
	}
}

func (a wide) before() wide {
	if a.lo == 0 {
		return wide{a.hi - 1, ^uint64(0)}
	}
	return wide{a.hi, a.lo - 1}
}

func (a wide) after() wide {
	if a.lo == ^uint64(0) {
		return wide{a.hi + 1, 0}
	}
	return wide{a.hi, a.lo + 1}
}

func addr4(a uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}

func (c *classes) prove4(p *ir.Program, t *tables, used map[int][]int) error {
	var edges []edge
	for s := range used {
		if p.Sets[s].Static == nil {
			continue
		}
		for _, r := range p.Sets[s].Static.V4() {
			edges = append(edges, edge{wide{0, uint64(r.First)}, s, 1}, edge{wide{0, uint64(r.Last) + 1}, s, -1})
		}
	}
	edges = slices.DeleteFunc(edges, func(e edge) bool { return e.at.lo > 1<<32-1 })
	var hosts []uint32
	var astray error
	t.everyHost(func(a uint32, class uint16) {
		hosts = append(hosts, a)
		if class != 0 && class != t.class4(a) && astray == nil { // the entry looks up the address here first
			astray = &errTable{addr4(a), class, "in the hash of hosts"}
		}
	})
	if astray != nil {
		return astray
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	return c.sweep(edges, used, wide{0, 1<<32 - 1}, func(v interval) error { return c.range4(t, v, &hosts) })
}

// range4 looks up the addresses of a range by blocks of /24. A block has a line, or it has a background class, or its addresses are in the hash of
// hosts.
func (c *classes) range4(t *tables, v interval, hosts *[]uint32) error {
	see := func(a uint32, class uint16) error {
		if class != 0 {
			c.first4[a>>24] = true
		}
		c.show(false, class, wide{0, uint64(a)})
		if !c.see(false, class, v.vector) {
			return &errTable{addr4(a), class, c.vectors[v.vector]}
		}
		return nil
	}
	filtered := t.number("filter4_mask") != 0
	for at := v.first.lo; at <= v.last.lo; {
		end := min(at|0xff, v.last.lo)
		a := uint32(at)
		inBlocks := filtered && t.inFilter4(a)
		single := false
		switch {
		case filtered && !inBlocks && t.set("filter4_hosts"): // the bitmap contains no address of the whole block
			end = min(at|(1<<t.number("filter4_shift")-1), v.last.lo)
			if err := see(a, t.class4(a)); err != nil {
				return err
			}
		case inBlocks && t.line(a) != nil:
			single = true
		case inBlocks && t.background(a) != 0:
			if err := see(a, t.background(a)); err != nil {
				return err
			}
		default: // check the addresses in the hash of hosts, and one address that is not in the hash
			for len(*hosts) > 0 && uint64((*hosts)[0]) < at {
				*hosts = (*hosts)[1:]
			}
			next := uint64(1) << 32
			if len(*hosts) > 0 {
				next = uint64((*hosts)[0])
			}
			if next <= end {
				single = true
				break
			}
			if err := see(a, t.class4(a)); err != nil {
				return err
			}
			if !filtered && t.number("hosts4_wide") == 0 && t.number("hosts4_narrow") == 0 {
				end = v.last.lo // the family has no table
			}
		}
		for ; single && at <= end; at++ {
			if err := see(uint32(at), t.class4(uint32(at))); err != nil {
				return err
			}
		}
		at = end + 1
	}
	return nil
}

func (c *classes) prove6(p *ir.Program, t *tables, used map[int][]int) error {
	var edges []edge
	add := func(first wide, length, set int) {
		last := first
		if length < 64 {
			last.hi |= ^uint64(0) >> length
		}
		if length < 128 {
			last.lo |= ^uint64(0) >> max(0, length-64)
		}
		edges = append(edges, edge{first, set, 1})
		if last != (wide{^uint64(0), ^uint64(0)}) {
			edges = append(edges, edge{last.after(), set, -1})
		}
	}
	for s := range used {
		if p.Sets[s].Static == nil {
			continue
		}
		for prefix := range p.Sets[s].Static.Prefixes() {
			if a := prefix.Addr(); a.Is6() {
				bytes := a.As16()
				add(wide{binary.BigEndian.Uint64(bytes[:8]), binary.BigEndian.Uint64(bytes[8:])}, prefix.Bits(), s)
			}
		}
	}
	const none = -1 // boundaries of prefixes in the table belong to no set
	var unfiltered error
	t.everyPrefix(func(first wide, length int, class uint16) {
		add(first, length, none)
		if class != 0 && unfiltered == nil {
			unfiltered = c.filtered6(t, first, length)
		}
	})
	end := wide{^uint64(0), ^uint64(0)}
	look := func(v interval) error {
		for _, a := range []wide{v.first, v.last} {
			class := uint16(0)
			if len(t.memory[image.Buckets6]) > 0 {
				class = t.class6(a)
			}
			c.show(true, class, a)
			if !c.see(true, class, v.vector) {
				var b [16]byte
				binary.BigEndian.PutUint64(b[:8], a.hi)
				binary.BigEndian.PutUint64(b[8:], a.lo)
				return &errTable{netip.AddrFrom16(b), class, c.vectors[v.vector]}
			}
		}
		return nil
	}
	return errors.Join(unfiltered, c.sweep(edges, used, end, look))
}

// filtered6 returns an error if the filter in front of the table lacks a prefix of the table.
func (c *classes) filtered6(t *tables, first wide, length int) error {
	upper := uint32(first.hi >> 32)
	if length == 0 {
		for i := 0; i+8 <= len(t.memory[image.Filter6]); i += 8 {
			if native.Uint64(t.memory[image.Filter6][i:]) != ^uint64(0) {
				return errors.New("the filter of the IPv6 table has not all bits, as ::/0 needs them")
			}
		}
		return nil
	}
	if length < 20 {
		return c.filtered6(t, first, 0)
	}
	for i := range uint32(1) << max(0, 32-length) {
		if !t.inFilter6(upper + i) {
			return fmt.Errorf("the filter of the IPv6 table lacks the prefix %016x/%d", first.hi, length)
		}
	}
	return nil
}

// of returns the classes of addresses of a family, in ascending order.
func (c *classes) of(v6 bool) []uint16 {
	if n := flag(v6); len(c.sorted[n]) != len(c.family[n]) {
		c.sorted[n] = slices.Sorted(maps.Keys(c.family[n]))
	}
	return c.sorted[flag(v6)]
}

// holds returns for each of the classes whether any of the sets contains its addresses. It returns nil if the classes do not determine this.
func (c *classes) holds(of []uint16, sets []int) []bool {
	n, ok := c.number[key(sets)]
	if !ok {
		return nil
	}
	out := make([]bool, len(of))
	for i, class := range of {
		out[i] = c.vectors[c.vector[class]][n] == 1
	}
	return out
}
