// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"math"
	"testing"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// TestLeastBytes compares the size of the smallest table with the exact number of lists of this length, by the logarithms of factorials.
func TestLeastBytes(t *testing.T) {
	t.Parallel()
	factorial := func(n float64) float64 { l, _ := math.Lgamma(n + 1); return l / math.Ln2 }
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		want := (factorial(math.Exp2(32)) - factorial(float64(n)) - factorial(math.Exp2(32)-float64(n))) / 8
		if got := float64(leastBytes(n)); math.Abs(got/want-1) > 0.001 {
			t.Errorf("%d addresses: %.0f bytes, want %.0f", n, got, want)
		}
	}
	if got := leastBytes(1); got != rig.Line {
		t.Errorf("one address: %d bytes, want a line", got)
	}
}
