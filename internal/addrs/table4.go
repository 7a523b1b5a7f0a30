package addrs

import (
	"math/bits"
	"slices"
)

// The parts of the IPv4 table whose size does not depend on the content, in octets.
const (
	IndexBytes      = blocks4 / 32 * 8
	BackgroundBytes = nets4 * 2
	LineBytes       = 64
	FullBlockBytes  = 512
)

// DefaultMinShift is the smallest filter block that Build chooses by itself, 2^5 addresses: 16 MB.
const DefaultMinShift = 5

const (
	blocks4  = 1 << 24 // /24s
	nets4    = 1 << 16 // /16s
	minShift = 4
	maxShift = 16 // 8 kB: stays in the first cache

	// maxExcess is the share of all addresses that may pass the filter without being in any set. Each of them costs an
	// access to the index; a filter of half the size costs fewer cache misses to all.
	maxExcess = 0.10
)

// Table4 is the class table of IPv4 for the datapath, planned but not yet written to memory. A lookup reads
//
//	filter:     one bit per 2^Shift addresses, set when any of them has a class other than 0
//	index:      {u32 present, u32 base} per 32 /24s: whether a /24 has a line, and the number of the first line
//	lines:      64 octets per /24: {u64 hosts[4], u16 inside, u16 outside, u32 full, 24 octets 0}
//	full:       u16 class[256] per /24 of more than two classes, number full-1
//	hosts:      buckets of 8 {address, class}, for /24s with few listed addresses, which then have no line
//	background: u16 class per /16, of all its /24s without a line
//
// An unlisted address mostly costs the access to the filter, which fits in the cache. A listed one costs one more, to
// the hosts, or two, to the index and a line.
type Table4 struct {
	Shift       int    // of the filter
	Lines       int    // number of lines
	FullBlocks  int    // number of /24s with more than two classes
	Hosts       int    // number of addresses that are listed one by one
	HostBuckets int    // number of buckets of these
	Seed        uint64 // of their hash

	runs       []run
	present    []uint64 // a bit per /24: has a line
	sparse     []uint64 // a bit per /24: its few listed addresses are among the hosts
	background []uint16
	fill       filterFill
}

// FilterBytes is the size of the filter in octets.
func (t *Table4) FilterBytes() int { return 1 << (32 - t.Shift - 3) }

// LimitShift chooses the filter's block anew: the largest of 2^16 to 2^least addresses with which no more than a tenth
// of all addresses pass the filter in vain, or the smallest when there is none. Call it before FilterBytes and Encode.
func (t *Table4) LimitShift(least int) { t.Shift = t.fill.shift(max(least, minShift)) }

func newTable4(runs []run) *Table4 {
	t := &Table4{
		runs: runs, present: make([]uint64, blocks4/64), sparse: make([]uint64, blocks4/64),
		background: make([]uint16, nets4),
	}
	for _, r := range runs {
		t.fill.add(r)
	}
	t.LimitShift(DefaultMinShift)
	t.planBlocks()
	t.planHosts()
	for _, word := range t.present {
		t.Lines += bits.OnesCount64(word)
	}
	return t
}

// filterFill counts how many bits of the filter would be set for each choice of its shift.
type filterFill struct {
	last    uint32
	any     bool
	listed  uint64
	begun   [33]uint64           // runs by the number of low bits in which the first address differs from the run before
	further [maxShift + 1]uint64 // per shift, the blocks of runs besides their first
}

// add counts a run. It begins a new block of 2^s addresses when it differs from the end of the run before in a bit from
// s up.
func (f *filterFill) add(r run) {
	differ := 32
	if f.any {
		differ = bits.Len32(r.first ^ f.last)
	}
	f.begun[differ]++
	f.last, f.any = r.last, true
	f.listed += uint64(r.last-r.first) + 1
	if r.first>>minShift == r.last>>minShift {
		return
	}
	for s := minShift; s <= maxShift; s++ {
		f.further[s] += uint64(r.last>>s - r.first>>s)
	}
}

// blocks is the number of blocks of 2^shift addresses with any that is listed.
func (f *filterFill) blocks(shift int) uint64 {
	n := f.further[shift]
	for _, begun := range f.begun[shift+1:] {
		n += begun
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
func (t *Table4) HasBackground() bool {
	return slices.ContainsFunc(t.background, func(class uint16) bool { return class != 0 })
}
