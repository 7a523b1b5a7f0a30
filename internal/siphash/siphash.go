// Package siphash computes SipHash-1-3 over whole words, as bpf/siphash.h and bpf/names.h do: a keyed hash that one who
// does not have the key cannot forge (Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012).
package siphash

import "math/bits"

// Hash is a hash of the words so far.
type Hash struct{ a, b, c, d uint64 } // v0 to v3 of the paper

// New begins a hash. The key is two words in the order of bpf/siphash.h.
func New(key [2]uint64) Hash {
	return Hash{
		key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
		key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573,
	}
}

func (h *Hash) round() {
	h.a += h.b
	h.c += h.d
	h.b = bits.RotateLeft64(h.b, 13) ^ h.a
	h.d = bits.RotateLeft64(h.d, 16) ^ h.c
	h.a = bits.RotateLeft64(h.a, 32)
	h.c += h.b
	h.a += h.d
	h.b = bits.RotateLeft64(h.b, 17) ^ h.c
	h.d = bits.RotateLeft64(h.d, 21) ^ h.a
	h.c = bits.RotateLeft64(h.c, 32)
}

// Add takes the next word. Whoever hashes texts of several lengths has the last one tell them apart, as the paper's does.
func (h *Hash) Add(word uint64) {
	h.d ^= word
	h.round()
	h.a ^= word
}

// Sum is the hash of the words so far.
func (h Hash) Sum() uint64 {
	h.c ^= 0xff
	h.round()
	h.round()
	h.round()
	return h.a ^ h.b ^ h.c ^ h.d
}
