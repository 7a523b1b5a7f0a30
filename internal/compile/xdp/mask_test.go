// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"math/rand/v2"
	"testing"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// TestMaskOfFlags checks that every mask of flags is found, and matches exactly the values from which it was made.
func TestMaskOfFlags(t *testing.T) {
	for mask := range 256 {
		for value := range 256 {
			if value&^mask != 0 {
				continue
			}
			values := match.Flags(func(v uint32) bool { return v&uint32(mask) == uint32(value) }).Values
			got, ok := maskOf(values, packet.Flags.Size())
			if !ok {
				t.Fatalf("%#x/%#x: no mask found", value, mask)
			}
			for v := range packet.Flags.Size() {
				want := v < packet.FlagsNone && int(v)&mask == value
				if v&got.mask == got.value != want {
					t.Fatalf("%#x/%#x: value %#x: %v by mask %+v", value, mask, v, !want, got)
				}
			}
		}
	}
}

// TestMaskOfAnything checks that a mask is found only for values that it matches exactly.
func TestMaskOfAnything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 20_000 {
		var values []ir.Range
		for range 1 + r.IntN(4) {
			v := r.Uint32N(16)
			values = append(values, ir.Range{First: v, Last: v})
		}
		values = ranges.Normalize(values)
		got, ok := maskOf(values, 16)
		if !ok {
			continue
		}
		found++
		for v := range uint32(16) {
			if v&got.mask == got.value != (ir.Match{Values: values}).Has(v) {
				t.Fatalf("%v: value %d by mask %+v", values, v, got)
			}
		}
	}
	if found == 0 {
		t.Error("no mask was ever found")
	}
}
