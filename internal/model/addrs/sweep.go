// SPDX-License-Identifier: Apache-2.0

package addrs

import "math"

// run is a range of IPv4 addresses of one class other than 0.
type run struct {
	first, last uint32
	class       uint16
}

// sweep4 visits the borders of all ranges in ascending order. It returns the runs, sorted.
func sweep4(sets []*Set, c *census) ([]run, error) {
	s := sweeper4{census: c, runs: make([]run, 0, count(sets, func(s *Set) int { return len(s.v4) }))}
	next := borders4(sets)
	h := newHeads(len(sets), next, func(a, b uint64) bool { return a < b })
	var at uint64
	for len(h.heap) > 0 {
		top := h.heap[0]
		if top.key != at {
			if err := s.end(at); err != nil {
				return nil, err
			}
			at = top.key
			if top.step&1 == 0 {
				n, err := s.alone(top.seq, sets[top.seq].v4[top.step/2:], h.second(math.MaxUint64))
				if err != nil {
					return nil, err
				}
				if n > 0 {
					h.advance(2*n, next)
					continue
				}
			}
		}
		c.toggle(top.seq)
		h.advance(1, next)
	}
	return s.runs, s.end(at)
}

// borders4 returns a function that yields two borders for each range: its first address, and the address after its last, which may
// be 2^32. The borders of a set are strictly ascending, since its ranges do not touch.
func borders4(sets []*Set) func(set int32, step int) (uint64, bool) {
	return func(set int32, step int) (uint64, bool) {
		ranges := sets[set].v4
		if step/2 >= len(ranges) {
			return 0, false
		}
		r := ranges[step/2]
		if step&1 == 0 {
			return uint64(r.First), true
		}
		return uint64(r.Last) + 1, true
	}
}

func count(sets []*Set, of func(*Set) int) (n int) {
	for _, s := range sets {
		n += of(s)
	}
	return n
}

// sweeper4 makes runs from changes of the class.
type sweeper4 struct {
	census *census
	runs   []run
	first  uint32 // first address of the current class
	class  uint16
}

// end is called after all changes at a border. If the class has changed, the run before the border ends.
func (s *sweeper4) end(border uint64) error {
	class, err := s.census.class()
	if err != nil || class == s.class {
		return err
	}
	if s.class != 0 {
		s.runs = append(s.runs, run{s.first, uint32(border - 1), s.class})
	}
	s.first, s.class = uint32(border), class
	return nil
}

// alone adds runs for the leading ranges of a set that end before the next border of any other set. It returns the number of these ranges. Most
// ranges of a long list are of this kind. The two classes inside and outside of them are looked up only once.
func (s *sweeper4) alone(set int32, ranges []Range, border uint64) (n int, err error) {
	if uint64(ranges[0].Last)+1 >= border {
		return 0, nil
	}
	s.census.toggle(set)
	inside, err := s.census.class()
	s.census.toggle(set)
	if err != nil {
		return 0, err
	}
	for n < len(ranges) && uint64(ranges[n].Last)+1 < border {
		r := ranges[n]
		if s.class != 0 {
			s.runs = append(s.runs, run{s.first, r.First - 1, s.class})
		}
		s.runs = append(s.runs, run{r.First, r.Last, inside})
		s.first = r.Last + 1
		n++
	}
	return n, nil
}

// classed6 is a prefix with a class. The class applies to the addresses of the prefix that no longer prefix covers.
type classed6 struct {
	prefix6
	class  uint16
	marker bool   // longer prefixes may exist below this one
	home   uint32 // bucket of the hash table
}

// meta returns the value of a bucket's meta for this prefix: the class and the marker flag.
func (c *classed6) meta() uint32 {
	if c.marker {
		return uint32(c.class) | marker6
	}
	return uint32(c.class)
}

// sweep6 visits the prefixes of all sets in ascending order. It returns each prefix once. The class of a prefix is that of all sets
// that have it or a prefix that covers it.
func sweep6(sets []*Set, c *census) ([]classed6, error) {
	next := func(set int32, step int) (prefix6, bool) {
		if v6 := sets[set].v6; step < len(v6) {
			return v6[step], true
		}
		return prefix6{}, false
	}
	s := sweeper6{census: c, out: make([]classed6, 0, count(sets, func(s *Set) int { return len(s.v6) }))}
	for p, set := range merged(len(sets), next, prefix6.before) {
		if err := s.enter(p); err != nil {
			return nil, err
		}
		c.toggle(set)
		s.open = append(s.open, opened6{p, set})
	}
	return s.out, s.settle()
}

// sweeper6 follows the nesting of the prefixes.
type sweeper6 struct {
	census *census
	open   []opened6 // the current prefix and those that cover it, outermost first
	out    []classed6
}

// opened6 is an open prefix of a set: the sweep is inside it. Prefixes of one set are disjoint, so a set has at most one open
// prefix.
type opened6 struct {
	prefix6
	set int32
}

// enter makes p the current prefix, and closes the open prefixes that do not cover it.
func (s *sweeper6) enter(p prefix6) error {
	if n := len(s.out); n > 0 && s.out[n-1].prefix6 == p {
		return nil
	}
	if err := s.settle(); err != nil {
		return err
	}
	for n := len(s.open); n > 0 && !s.open[n-1].covers(p); n-- {
		s.census.toggle(s.open[n-1].set)
		s.open = s.open[:n-1]
	}
	s.out = append(s.out, classed6{prefix6: p})
	return nil
}

// settle sets the class of the current prefix. It is called when all sets that have the prefix are known.
func (s *sweeper6) settle() (err error) {
	if n := len(s.out); n > 0 {
		s.out[n-1].class, err = s.census.class()
	}
	return err
}
