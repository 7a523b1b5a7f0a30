// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"math/bits"
	"slices"
)

// bitset is a set of numbers of samples.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

// fullBitset returns the set of all numbers from 0 to n-1.
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

// first returns the smallest number of a set. The set must not be empty.
func (b bitset) first() int {
	at := slices.IndexFunc(b, func(w uint64) bool { return w != 0 })
	return 64*at + bits.TrailingZeros64(b[at])
}

// and returns the intersection of two sets.
func (b bitset) and(c bitset) bitset {
	out := make(bitset, len(b))
	for i := range b {
		out[i] = b[i] & c[i]
	}
	return out
}

// common returns the size of the intersection of two sets.
func (b bitset) common(c bitset) (n int) {
	for i := range b {
		n += bits.OnesCount64(b[i] & c[i])
	}
	return n
}

// without returns the difference of two sets: the numbers of b that are not in c.
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
