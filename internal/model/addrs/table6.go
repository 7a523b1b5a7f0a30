// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
)

// Filter6Bytes is the size of the IPv6 filter in bytes.
const Filter6Bytes = 1 << (filter6Bits - 3)

const (
	filter6Bits = 20

	// filter6Reach is the length of the shortest prefix whose /32s are added to the filter one by one. A prefix of this length has 4096 of them. A
	// shorter prefix sets all bits of the filter.
	filter6Reach = 20

	// marker6 is a flag in a bucket's meta: longer prefixes may exist below this one. The lower half of the meta is the
	// class.
	marker6 = 1 << 16

	// maxLoad6 is the largest share of slots in use. At 2/3, one search in eight reads a second bucket.
	maxLoad6 = 2.0 / 3
)

// Table6 is the class table of IPv6 for the datapath. It is a hash table of prefixes. A lookup does a binary search
// over the prefix lengths that occur (Waldvogel, Varghese, Turner and Plattner, "Scalable High Speed IP Routing
// Lookups", SIGCOMM 1997). Markers lead the search to longer prefixes. They also carry the class of the best match so
// far, so the search never has to go back:
//
//	best = 0, lo = 0, hi = number of lengths
//	while lo < hi: mid = (lo + hi) / 2, look for the address cut to lengths[mid]
//	    found: best = its class; if it is a marker lo = mid + 1, else done
//	    not found: hi = mid
type Table6 struct {
	Seed    uint64  // of the hash
	Lengths []uint8 // prefix lengths that occur, ascending
	Entries int     // number of prefixes and markers

	buckets buckets
	filter  []uint64
}

// V6Memory is the memory of an IPv6 table. The number of buckets must be that of the table, which is a power of two.
type V6Memory struct {
	Buckets []byte // Table6.BucketsBytes
	Filter  []byte // Filter6Bytes: a bit per hash of an address's first 32 bits
}

// Empty reports whether all addresses have class 0.
func (t *Table6) Empty() bool { return len(t.Lengths) == 0 }

// BucketsBytes returns the size of all buckets in bytes; each has BucketBytes.
func (t *Table6) BucketsBytes() int { return len(t.buckets.memory) }

// NewMemory allocates memory for the table. The datapath uses mapped BPF arrays instead.
func (t *Table6) NewMemory() V6Memory {
	return V6Memory{Buckets: make([]byte, t.BucketsBytes()), Filter: make([]byte, Filter6Bytes)}
}

// Encode writes the table to memory.
func (t *Table6) Encode(m V6Memory) error {
	if len(m.Buckets) != t.BucketsBytes() {
		return fmt.Errorf("memory for the buckets has %d bytes, the table needs %d", len(m.Buckets), t.BucketsBytes())
	}
	if len(m.Filter) < Filter6Bytes {
		return fmt.Errorf("memory for the filter has %d bytes, the table needs %d", len(m.Filter), Filter6Bytes)
	}
	copy(m.Buckets, t.buckets.memory)
	for i, word := range t.filter {
		native.PutUint64(m.Filter[8*i:], word)
	}
	return nil
}

// Lookup returns the class of an IPv6 address. It searches as the datapath does.
func (t *Table6) Lookup(m V6Memory, a netip.Addr) uint16 {
	p := prefix6From(a, 128)
	bit := filter6Bit(p.hi)
	if native.Uint64(m.Filter[bit>>6*8:])>>(bit&63)&1 == 0 {
		return 0
	}
	table := buckets{m.Buckets, t.Seed, uint32(len(m.Buckets)/BucketBytes - 1)}
	best := uint16(0)
	for lo, hi := 0, len(t.Lengths); lo < hi; {
		mid := (lo + hi) / 2
		s, ok := table.find(p.cut(t.Lengths[mid]))
		if !ok {
			hi = mid
			continue
		}
		best = uint16(table.meta(s))
		if table.meta(s)&marker6 == 0 {
			break
		}
		lo = mid + 1
	}
	return best
}

// filter6Bit returns the number of the filter's bit for an address whose first 8 bytes are hi.
func filter6Bit(hi uint64) uint32 {
	return uint32(((hi >> 32) * 0x9e3779b97f4a7c15) >> (64 - filter6Bits))
}

// newTable6 makes the table of sorted prefixes.
func newTable6(prefixes []classed6) (*Table6, error) {
	t := &Table6{filter: newFilter6(prefixes), Lengths: lengthsOf(prefixes)}
	entries := withMarkers(prefixes, t.Lengths)
	t.Entries = len(entries)
	size := bucketsFor(len(entries), maxLoad6)
	const tries = 4
	for try := range 2 * tries {
		t.Seed = rand.Uint64()
		t.buckets = buckets{make([]byte, size*BucketBytes), t.Seed, uint32(size - 1)}
		if t.fill(entries) {
			return t, nil
		}
		if try%tries == tries-1 {
			size *= 2
		}
	}
	return nil, errors.New("hashing the IPv6 prefixes: too many fall into the same place")
}

// fill inserts the entries in the order of their homes. It reports whether all of them fit. This order minimizes the largest distance of an entry
// from its home. At a load of 2/3, a million entries nearly always stay within 7 buckets of their homes. In random order, thousands would not.
func (t *Table6) fill(entries []classed6) bool {
	for i := range entries {
		entries[i].home = t.buckets.home(entries[i].prefix6)
	}
	entries = radixSort(entries, 32, func(e *classed6) uint64 { return uint64(e.home) })
	next := slot(0)
	for i := range entries {
		e := &entries[i]
		next = max(next, slot(e.home)*bucketSlots)
		s, ok := next, next.bucket()-int(e.home) <= maxDisplacement
		if next.bucket() > int(t.buckets.mask) {
			s, ok = t.buckets.claim(e.prefix6, 0) // claim continues after the last bucket with the first buckets
		}
		if !ok {
			return false
		}
		t.buckets.lead(e.home, s)
		t.buckets.publish(s, e.prefix6, e.meta())
		next++
	}
	return true
}

// bucketsFor returns the smallest power of two of buckets that holds the entries without exceeding the load.
func bucketsFor(entries int, load float64) int {
	n := int(math.Ceil(float64(entries) / (bucketSlots * load)))
	return 1 << bits.Len(uint(max(n, 1)-1))
}

func newFilter6(prefixes []classed6) []uint64 {
	filter := make([]uint64, Filter6Bytes/8)
	for _, p := range prefixes {
		if p.length < filter6Reach {
			for i := range filter {
				filter[i] = ^uint64(0)
			}
			return filter
		}
		for i := range uint64(1) << max(32-int(p.length), 0) {
			bit := filter6Bit(p.hi + i<<32)
			filter[bit>>6] |= 1 << (bit & 63)
		}
	}
	return filter
}

func lengthsOf(prefixes []classed6) []uint8 {
	var occurs [129]bool
	for _, p := range prefixes {
		occurs[p.length] = true
	}
	var lengths []uint8
	for length, ok := range occurs {
		if ok {
			lengths = append(lengths, uint8(length))
		}
	}
	return lengths
}
