// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"math/bits"
	"slices"
)

// blockSpan is either one or more neighbouring /24s whose addresses all have the same class, or a single /24 with several classes
// and the runs that overlap it.
type blockSpan struct {
	first, end uint32 // numbers of /24s; end is not included
	class      uint16
	runs       []run
}

// blockSpans calls yield for all /24s that have an address of a class other than 0, in ascending order. It calls gap for the ranges of /24s of class
// 0 before and between them.
func blockSpans(runs []run, yield func(blockSpan), gap func(first, end uint32)) {
	for at := uint32(0); len(runs) > 0; {
		r := runs[0]
		if first := r.first >> 8; first > at {
			gap(at, first)
			at = first
		}
		if end := uint32((uint64(r.last) + 1) >> 8); r.first <= at<<8 && end > at {
			yield(blockSpan{first: at, end: end, class: r.class})
			at = end
		} else {
			n := reaching(runs, at)
			yield(blockSpan{first: at, end: at + 1, runs: runs[:n]})
			at++
			runs = runs[n-1:] // the last run may continue in the next /24; all others end in this one
		}
		if uint64(runs[0].last) < uint64(at)<<8 {
			runs = runs[1:]
		}
	}
}

// noGap is the gap function for callers that do not need the /24s of class 0.
func noGap(first, end uint32) {}

// reaching returns the number of leading runs that have addresses in the /24. The first run must have some.
func reaching(runs []run, block uint32) int {
	n := 1
	for n < len(runs) && runs[n].first>>8 == block {
		n++
	}
	return n
}

// appendHosts appends the addresses of a /24 that have a class other than 0.
func (s blockSpan) appendHosts(list []host) []host {
	for _, r := range s.runs {
		first, last := r.clip(s.first)
		for i := first; i <= last; i++ {
			list = append(list, host{s.first<<8 | i, r.class})
		}
	}
	return list
}

// clip returns the part of the run within the /24. first and last are the last bytes of its first and last address.
func (r run) clip(block uint32) (first, last uint32) {
	first, last = 0, 255
	if r.first>>8 == block {
		first = r.first & 0xff
	}
	if r.last>>8 == block {
		last = r.last & 0xff
	}
	return first, last
}

// classes returns the two classes of a /24 with several classes. outside is 0 if any address has class 0. ok is false
// if there are more than two.
func (s blockSpan) classes() (inside, outside uint16, ok bool) {
	if s.listed() == 256 {
		outside = s.runs[0].class
	}
	inside = outside
	for _, r := range s.runs {
		if r.class == outside || r.class == inside {
			continue
		}
		if inside != outside {
			return 0, 0, false
		}
		inside = r.class
	}
	return inside, outside, true
}

// listed returns the number of addresses in a /24 with several classes that have a class other than 0.
func (s blockSpan) listed() (n uint32) {
	for _, r := range s.runs {
		first, last := r.clip(s.first)
		n += last - first + 1
	}
	return n
}

// planner processes one /16 at a time. It chooses the background class of the /16, and decides which of its /24s need a line.
type planner struct {
	table      *Table4
	fullBlocks int // number of /24s that need a full block, in all /16s so far
	allHosts   int // number of hosts in /24s without a line, in all /16s so far

	net     uint32
	uniform [256]uint16 // class of each /24 that is not mixed
	mixed   [4]uint64   // a bit per /24 that needs a line
	listed  bool        // a class in uniform is not 0

	sparse [4]uint64 // a bit per /24 with few listed hosts, which needs no line as long as the background is 0
	hosts  int       // number of hosts in the sparse /24s
	full   int       // number of sparse /24s that would need a full block if they had a line
}

// planBlocks decides which /24s of the runs get a line. It returns the number of /24s that need a full block, and the number of
// hosts in /24s without a line.
func (t *Table4) planBlocks(runs []run) (full, hosts int) {
	p := planner{table: t, net: runs[0].first >> 16}
	blockSpans(runs, func(s blockSpan) {
		p.enter(s.first >> 8)
		if s.runs == nil {
			p.addUniform(s)
		} else {
			p.addMixed(s)
		}
	}, noGap)
	p.finish()
	return p.fullBlocks, p.allHosts
}

func (p *planner) addMixed(s blockSpan) {
	full := 0
	if len(s.runs) > 1 {
		if _, _, ok := s.classes(); !ok {
			full = 1
		}
	}
	at, bit := s.first>>6&3, uint64(1)<<(s.first&63)
	if n := s.listed(); n <= sparse {
		p.sparse[at] |= bit
		p.hosts += int(n)
		p.full += full
		return
	}
	p.mixed[at] |= bit
	p.fullBlocks += full
}

func (p *planner) addUniform(s blockSpan) {
	for at := s.first; at < s.end; {
		p.enter(at >> 8)
		end := min(s.end, at&^0xff+256)
		if end-at == 256 {
			p.table.background[p.net] = s.class
			at = end
			continue
		}
		for ; at < end; at++ {
			p.uniform[at&0xff] = s.class
		}
		p.listed = true
	}
}

// enter finishes the current /16 and begins the /16 with the number net.
func (p *planner) enter(net uint32) {
	if net != p.net {
		p.finish()
		p.net = net
	}
}

// finish writes the plan of the current /16 and resets the planner.
func (p *planner) finish() {
	present := p.table.present[p.net*4:][:4]
	copy(present, p.mixed[:])
	if p.listed {
		p.chooseBackground(present)
	}
	if p.table.background[p.net] == 0 {
		copy(p.table.sparse[p.net*4:], p.sparse[:])
		p.allHosts += p.hosts
	} else {
		for i := range present {
			present[i] |= p.sparse[i]
		}
		p.fullBlocks += p.full
	}
	p.mixed, p.sparse, p.hosts, p.full = [4]uint64{}, [4]uint64{}, 0, 0
	if p.listed {
		p.uniform, p.listed = [256]uint16{}, false
	}
}

// chooseBackground chooses the background of the current /16, and gives a line to every /24 of a single class that differs from the
// background.
func (p *planner) chooseBackground(present []uint64) {
	background := p.mostFrequent(present)
	p.table.background[p.net] = background
	for i, class := range p.uniform {
		if class != background && p.sparse[i>>6]>>(i&63)&1 == 0 {
			present[i>>6] |= 1 << (i & 63)
		}
	}
}

// mostFrequent returns the most frequent class among the /24s that are not in mixed. If several classes are equally frequent, it returns the lowest
// one.
func (p *planner) mostFrequent(mixed []uint64) uint16 {
	classes := make([]uint16, 0, 256)
	for i, class := range p.uniform {
		if mixed[i>>6]>>(i&63)&1 == 0 {
			classes = append(classes, class)
		}
	}
	slices.Sort(classes)
	var best uint16
	most, count := 0, 0
	for i, class := range classes {
		if i > 0 && class != classes[i-1] {
			count = 0
		}
		if count++; count > most {
			best, most = class, count
		}
	}
	return best
}

// linesBefore returns the number of lines of the /24s below the block, as far as they are in the same word of the bitmap.
func linesBefore(present uint32, block uint32) int {
	return bits.OnesCount32(present & (1<<(block&31) - 1))
}
