// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"iter"
	"sync/atomic"
)

// The memory of the sets' prefix lengths. In a block of three words, bit n of word w stands for the length 128 - 64w - n, so the longest
// length comes first. IPv4 prefixes have the lengths of their 128-bit form, so all of them are in the first word.
const (
	LengthsBlockBytes = 24
	LengthsBlocks     = 2 * lengthsBlocks // per set

	lengthsBlocks = 256 // per family
)

// LengthsBytes returns the size of DynamicMemory.Lengths for a number of sets, in bytes. Each set has 256 blocks for IPv4, then 256 for IPv6
// (struct lengths of bpf/dynamic.h). A block stands for all addresses whose first 16 bits, or 32 bits in IPv6, have the same hash. It says
// which prefix lengths the set may have for these addresses. So a lookup tries only a few lengths, even if the whole set has many.
func LengthsBytes(sets int) int { return sets * LengthsBlocks * LengthsBlockBytes }

// blocks yields the offsets of the blocks to which a prefix belongs. A short prefix belongs to all blocks of its family. A longer prefix belongs to
// the block of each possible first part of an address in it. family is the family of the packets. IPv6 packets may also have addresses in the form of
// IPv4 prefixes.
func (p prefix6) blocks(family int) iter.Seq[int] {
	start, bits := uint32(p.hi>>32), uint8(32)
	if family == 0 {
		start, bits = uint32(p.lo)>>16, 96+16
	}
	return func(yield func(int) bool) {
		short := p.length+8 <= bits
		for i := range uint32(1) << min(8, bits-min(p.length, bits)) {
			block := i
			if !short {
				block = (start + i) * 0x9e3779b1 >> 24 // Fibonacci hashing (Knuth, volume 3, 6.4)
			}
			if !yield((family*lengthsBlocks + int(block)) * LengthsBlockBytes) {
				return
			}
		}
	}
}

// noteLength records the length of a prefix in the memory of its set. The caller must do this before it makes the entry visible.
func noteLength(memory []byte, p prefix6) {
	if len(memory) == 0 {
		return // memory of an earlier format
	}
	at := 128 - int(p.length)
	for block := range p.blocks(p.family()) {
		word := word64(memory, block+at/64*8)
		if bit := uint64(1) << (at % 64); atomic.LoadUint64(word)&bit == 0 { // without this test, other CPUs would have to load the cache line again
			atomic.OrUint64(word, bit)
		}
	}
}

// copyWords copies only the words that differ.
func copyWords(to, from []byte) {
	for at := 0; at < len(to); at += 8 {
		if word := word64(to, at); *word != *word64(from, at) {
			atomic.StoreUint64(word, *word64(from, at))
		}
	}
}

// lengthsAt returns the prefix lengths that the set may have in the block of an address, the longest first. key must be a prefix of 128
// bits.
func (s *DynamicSet) lengthsAt(key prefix6, family int) (list []uint8) {
	if len(s.lengths) == 0 {
		return s.earlierLengths(family)
	}
	for block := range key.blocks(family) {
		for at := range 129 {
			if atomic.LoadUint64(word64(s.lengths, block+at/64*8))>>(at%64)&1 == 1 {
				list = append(list, uint8(128-at))
			}
		}
	}
	return list
}
