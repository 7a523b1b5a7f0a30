// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
)

// The sizes in bytes of the parts of the IPv4 table. These sizes do not depend on the content.
const (
	IndexBytes      = blocks4 / 32 * 8
	BackgroundBytes = nets4 * 2
	LineBytes       = 64
	FullBlockBytes  = 512
)

const (
	blocks4  = 1 << 24 // /24s
	nets4    = 1 << 16 // /16s
	minShift = 8       // a /24; the filter then takes 2 MB
	maxShift = 16      // the filter then takes 8 kB, and stays in the first-level cache

	// minHostShift is the smallest shift of a filter that includes the hosts; the filter then takes 256 kB. A larger filter would
	// take more of the cache than the hosts' own filter, and let more addresses pass.
	minHostShift = 11

	// maxExcess is the largest share of all addresses that may pass the filter although no set contains them. Each of them costs an access to the
	// index. In return, a filter of half the size causes fewer cache misses for all addresses.
	maxExcess = 0.10
)

// Table4 is the class table of IPv4 for the datapath, planned but not yet written to memory. A lookup reads:
//
//	filter:     one bit per 2^Shift addresses, set if any of them has a class other than 0; if it would take more than
//	            256 kB because of the hosts, it does not include them: they then have a filter of their own
//	index:      {u32 present, u32 base} per 32 /24s: whether a /24 has a line, and the number of the first line
//	lines:      64 bytes per /24: {u64 hosts[4], u16 inside, u16 outside, u32 full, 24 bytes 0}
//	full:       u16 class[256] per /24 of more than two classes, number full-1
//	background: u16 class per /16, of all its /24s without a line
//	hosts:      a hash of single addresses, for /24s with few listed addresses; these /24s have no line (Hosts4)
//
// Parts that a table does not need are empty. A lookup of an unlisted address mostly takes one access, to this filter or to the
// hosts' own, which both fit in the cache. A lookup of a listed address takes one more access, to the hosts, or two more, to the
// index and a line.
type Table4 struct {
	Shift       int  // of the filter
	FilterHosts bool // the filter includes the hosts
	Lines       int  // number of lines
	FullBlocks  int  // number of /24s with more than two classes
	Hosts       Hosts4

	runs       []run
	present    []uint64 // a bit per /24 that has a line
	sparse     []uint64 // a bit per /24 whose few listed addresses are among the hosts
	background []uint16
	behind     bool   // at least one background is not 0
	blocks     []run  // /24s with any class other than 0 that are not sparse, as runs of addresses in ascending order
	hosts      []host // the listed addresses of the sparse /24s
	fill       filterFill
}

// FilterBytes returns the size of the filter in bytes, 0 if there is none.
func (t *Table4) FilterBytes() int {
	if !t.HasBlocks() && !t.FilterHosts {
		return 0
	}
	return 1 << (32 - t.Shift - 3)
}

// HasBlocks reports whether there is any line, or any background other than 0.
func (t *Table4) HasBlocks() bool { return t.Lines > 0 || t.behind }

func newTable4(runs []run) *Table4 {
	t := &Table4{
		runs: runs, present: make([]uint64, blocks4/64), sparse: make([]uint64, blocks4/64),
		background: make([]uint16, nets4),
	}
	parts := partsOf(runs)
	beside(len(parts), func(i int) {
		p := &parts[i]
		p.full, p.count = t.planBlocks(p.runs)
	})
	for i := range parts {
		t.FullBlocks += parts[i].full
		t.Hosts.Count += parts[i].count
	}
	for _, word := range t.present {
		t.Lines += bits.OnesCount64(word)
	}
	t.behind = slices.ContainsFunc(t.background, func(class uint16) bool { return class != 0 })
	t.hosts = make([]host, t.Hosts.Count)
	free := t.hosts
	for i := range parts {
		parts[i].hosts, free = free[:0:parts[i].count], free[parts[i].count:]
	}
	beside(len(parts), func(i int) { blockSpans(parts[i].runs, parts[i].sorter(t), noGap) })
	for _, p := range parts {
		t.blocks = append(t.blocks, p.blocks...)
	}
	t.planFilter()
	t.Hosts.plan(t.hosts, !t.FilterHosts)
	return t
}

// FirstHosts returns the hash of hosts if an XDP entry should search it directly. It should if the hosts have a filter of their own, or if many
// addresses that pass the filter are hosts in wide lines. Otherwise FirstHosts returns nil. An unsuccessful search costs about a third of the time
// that a successful search saves.
func (t *Table4) FirstHosts() *Hosts4 {
	const linesPerHost = 4
	wide := t.Hosts.Wide > 0 && t.Hosts.Narrow == 0
	if t.Hosts.Filter > 0 || t.FilterHosts && !t.behind && wide && t.Lines <= linesPerHost*t.Hosts.Count {
		return &t.Hosts
	}
	return nil
}

// part4 is a part of the table that is planned concurrently with the others. All runs of a /16 are in the same part.
type part4 struct {
	runs   []run
	full   int    // /24s that need a full block
	count  int    // number of hosts
	hosts  []host // its share of Table4.hosts
	blocks []run
}

// minPart is the smallest number of runs in a part. Planning a smaller part concurrently does not pay off.
const minPart = 1 << 14

// partsOf divides the runs into one part per CPU.
func partsOf(runs []run) (parts []part4) {
	size := max(len(runs)/runtime.GOMAXPROCS(0), minPart)
	for len(runs) > 0 {
		n := min(size, len(runs))
		for n < len(runs) && runs[n-1].last>>16 == runs[n].first>>16 {
			n++
		}
		parts = append(parts, part4{runs: runs[:n]})
		runs = runs[n:]
	}
	return parts
}

// beside runs n tasks concurrently, and waits for them.
func beside(n int, task func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { task(i) })
	}
	all.Wait()
}

// planFilter decides whether the filter includes the hosts, and chooses its shift.
func (t *Table4) planFilter() {
	if t.Hosts.Count < maxFiltered {
		for _, r := range t.runs {
			t.fill.add(r)
		}
		t.Shift = t.fill.shift(minShift)
		t.FilterHosts = t.Shift >= minHostShift
	}
	if !t.FilterHosts {
		t.fill = filterFill{}
		for _, r := range t.blocks {
			t.fill.add(r)
		}
		t.Shift = t.fill.shift(minShift)
	}
}

// sorter returns a function that adds a span to the hosts if it is sparse, or else to the blocks.
func (p *part4) sorter(t *Table4) func(blockSpan) {
	return func(s blockSpan) {
		if s.runs != nil && t.isSparse(s.first) {
			p.hosts = s.appendHosts(p.hosts)
			return
		}
		p.blocks = append(p.blocks, run{s.first << 8, s.end<<8 - 1, s.class})
	}
}

func (t *Table4) isSparse(block uint32) bool { return t.sparse[block>>6]>>(block&63)&1 == 1 }

// filterFill counts the bits of the filter that would be set, for each possible shift.
type filterFill struct {
	last    uint32
	any     bool
	listed  uint64
	started [33]uint64           // number of runs, by the number of low bits in which the first address differs from the end of the run before
	further [maxShift + 1]uint64 // per shift, the number of blocks of the runs, without the first block of each
}

// add counts a run. The run starts a new block of 2^s addresses if its first address differs from the end of the run before in bit s
// or a higher bit.
func (f *filterFill) add(r run) {
	differ := 32
	if f.any {
		differ = bits.Len32(r.first ^ f.last)
	}
	f.started[differ]++
	f.last, f.any = r.last, true
	f.listed += uint64(r.last-r.first) + 1
	if r.first>>minShift == r.last>>minShift {
		return
	}
	for s := minShift; s <= maxShift; s++ {
		f.further[s] += uint64(r.last>>s - r.first>>s)
	}
}

// blocks returns the number of blocks of 2^shift addresses that have any listed address.
func (f *filterFill) blocks(shift int) uint64 {
	n := f.further[shift]
	for _, started := range f.started[shift+1:] {
		n += started
	}
	return n
}

func (f *filterFill) shift(least int) int {
	for s := maxShift; s > least; s-- {
		if inVain := f.blocks(s)<<s - f.listed; float64(inVain) <= maxExcess*(1<<32) {
			return s
		}
	}
	return least
}

// Empty reports whether all addresses have class 0.
func (t *Table4) Empty() bool { return len(t.runs) == 0 }

// HasBackground reports whether any address without a line has a class other than 0.
func (t *Table4) HasBackground() bool { return t.behind }

// FirstBytes returns the first bytes of the addresses that have a class other than 0, as ascending ranges with a gap between any two.
func (t *Table4) FirstBytes() (list [][2]uint8) {
	for _, r := range t.runs {
		first, last := uint8(r.first>>24), uint8(r.last>>24)
		if n := len(list); n > 0 && int(first) <= int(list[n-1][1])+1 {
			list[n-1][1] = max(list[n-1][1], last)
			continue
		}
		list = append(list, [2]uint8{first, last})
	}
	return list
}
