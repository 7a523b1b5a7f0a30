// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

func TestUnionCovers(t *testing.T) {
	r := testutil.Random(t)
	covered := 0
	for range 300 {
		n := randomSets(r, 2, 1+r.IntN(6))
		a, b := n[0].set(t), n[1].set(t)
		union := Union(a, b)
		want := true // membership can change only at the ends of entries
		for _, at := range near(n) {
			inA, inB := n[0].contains(at), n[1].contains(at)
			if got := union.Contains(at); got != (inA || inB) {
				t.Fatalf("%v: the union has %s: %v", n, at, got)
			}
			want = want && (inA || !inB)
		}
		if got := a.Covers(b); got != want {
			t.Fatalf("%v: Covers is %v", n, got)
		}
		if !union.Covers(a) || !union.Covers(b) {
			t.Fatalf("%v: the union does not cover its parts", n)
		}
		if want {
			covered++
		}
	}
	if covered == 0 || covered == 300 {
		t.Errorf("%d of 300 covered: the test shows nothing", covered)
	}
}
