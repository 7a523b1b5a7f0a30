// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"math/bits"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// maskTest is the set of all values v with v&mask == value. A policy's test of TCP flags is usually such a set, which
// may have up to 128 ranges.
type maskTest struct{ mask, value uint32 }

// maskOf returns the mask and value that describe a set of values. size is the number of values that the field can have. It returns false if no mask
// describes the set.
func maskOf(values []ir.Range, size uint32) (maskTest, bool) {
	width := bits.Len32(size - 1)
	count, ones, zeros := uint32(0), ^uint32(0), ^uint32(0)
	for _, r := range values {
		for v := r.First; v <= r.Last; v++ {
			count, ones, zeros = count+1, ones&v, zeros&^v
		}
	}
	all := uint32(1)<<width - 1
	mask := (ones | zeros) & all
	if count != 1<<(width-bits.OnesCount32(mask)) {
		return maskTest{}, false
	}
	return maskTest{mask, ones & mask}, true
}

// comparisons returns the number of comparisons that a test of a field takes in straight code.
func comparisons(m ir.Match) int {
	if _, ok := fewerByMask(m); ok {
		return 1
	}
	return len(m.Values)
}

// fewerByMask returns the mask for a test, if a test by mask takes fewer instructions than a test by ranges.
func fewerByMask(m ir.Match) (maskTest, bool) {
	const smallDomain = 1 << 10 // maskOf tries all values, so the domain must be small
	if len(m.Values) < 3 || m.Field.Size() > smallDomain {
		return maskTest{}, false
	}
	return maskOf(m.Values, m.Field.Size())
}
