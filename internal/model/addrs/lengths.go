package addrs

import (
	"iter"
	"sync/atomic"
)

// The memory of the prefix lengths of sets. In a block of three words, bit n of word w is for the length 128 - 64w - n, so the longest comes
// first. IPv4 prefixes have the lengths of their 128-bit form, which are in the first word.
const (
	LengthsBlockBytes = 24
	LengthsBlocks     = 2 * lengthsBlocks // per set

	lengthsBlocks = 256 // per family
)

// LengthsBytes is the size of the memory DynamicMemory.Lengths for so many sets. Each has 256 blocks of IPv4, then 256 of IPv6 (struct
// lengths of bpf/dynamic.h). A block is all addresses whose first 16 bits, in IPv6 32 bits, have one hash. It says which prefix lengths the
// set may have of these addresses. So a lookup searches a few lengths, however many the whole set has.
func LengthsBytes(sets int) int { return sets * LengthsBlocks * LengthsBlockBytes }

// blocks yields where the blocks of a prefix are: of a short one all of its family, of others that of each start of an address. family is
// that of the packets: also in IPv6 packets there are addresses in the form of IPv4 prefixes.
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

// noteLength enters the length of a prefix in the memory of its set. An entry becomes visible afterwards.
func noteLength(memory []byte, p prefix6) {
	if len(memory) == 0 {
		return // of an earlier format
	}
	at := 128 - int(p.length)
	for block := range p.blocks(p.family()) {
		word := word64(memory, block+at/64*8)
		if bit := uint64(1) << (at % 64); atomic.LoadUint64(word)&bit == 0 { // or all CPUs would load the line again
			atomic.OrUint64(word, bit)
		}
	}
}

// copyWords writes the words that differ.
func copyWords(to, from []byte) {
	for at := 0; at < len(to); at += 8 {
		if word := word64(to, at); *word != *word64(from, at) {
			atomic.StoreUint64(word, *word64(from, at))
		}
	}
}

// lengthsAt are the lengths that the set may have of the block of an address, the longest first. The address is a prefix of 128 bits.
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
