package xdp

import (
	"math/bits"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// maskTest is a set of values that one mask tells from all others: v is in it when v&mask == value. What a policy says
// of TCP flags mostly is such a set, of up to 128 ranges.
type maskTest struct{ mask, value uint32 }

// maskOf finds the mask of a set of values of a field with so many values. It reports false when there is none.
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

// comparisons is how many compares a test of a field takes in straight code.
func comparisons(m ir.Match) int {
	if _, ok := fewerByMask(m); ok {
		return 1
	}
	return len(m.Values)
}

// fewerByMask returns the mask for a test that takes fewer instructions so.
func fewerByMask(m ir.Match) (maskTest, bool) {
	const smallDomain = 1 << 10 // maskOf asks every value
	if len(m.Values) < 3 || m.Field.Size() > smallDomain {
		return maskTest{}, false
	}
	return maskOf(m.Values, m.Field.Size())
}
