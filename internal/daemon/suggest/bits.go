package suggest

import (
	"math/bits"
	"slices"
)

// bitset is a set of numbers of samples.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

// fullBitset is the set of all numbers below n.
func fullBitset(n int) bitset {
	b := newBitset(n)
	for i := range n {
		b.add(i)
	}
	return b
}

func (b bitset) add(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitset) count() (n int) {
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// first is the least number, of a set that is not empty.
func (b bitset) first() int {
	at := slices.IndexFunc(b, func(w uint64) bool { return w != 0 })
	return 64*at + bits.TrailingZeros64(b[at])
}

// and are the numbers in both.
func (b bitset) and(c bitset) bitset {
	out := make(bitset, len(b))
	for i := range b {
		out[i] = b[i] & c[i]
	}
	return out
}

// common counts the numbers in both.
func (b bitset) common(c bitset) (n int) {
	for i := range b {
		n += bits.OnesCount64(b[i] & c[i])
	}
	return n
}

// without are the numbers of b that are not in c.
func (b bitset) without(c bitset) bitset {
	out := make(bitset, len(b))
	for i := range b {
		out[i] = b[i] &^ c[i]
	}
	return out
}

// each calls f for each number.
func (b bitset) each(f func(i int)) {
	for at, w := range b {
		for ; w != 0; w &= w - 1 {
			f(64*at + bits.TrailingZeros64(w))
		}
	}
}
