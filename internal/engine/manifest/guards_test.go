// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// TestNoEgress assumes a kernel without the egress hook, on which guards cannot limit responses. The limits of the guards must keep their numbers,
// which the program also uses, and must be marked as unused.
func TestNoEgress(t *testing.T) {
	m := Manifest{
		Guards: []Guard{{Service: "a", Limited: true}, {Service: "b"}},
		Limits: []Limit{{Rule: "a:total"}, {Rule: "a:responses"}, {Rule: "flood"}},
	}
	m.NoEgress([]ir.Guard{{Service: "a", Out: 1}, {Service: "b", Out: -1}})
	if m.Guards[0].Limited {
		t.Error("the guard is still reported")
	}
	for i, want := range []bool{false, true, false} {
		if m.Limits[i].Unused != want {
			t.Errorf("limit %d is unused: %t, want %t", i, m.Limits[i].Unused, want)
		}
	}
}
