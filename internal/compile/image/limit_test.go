// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"encoding/binary"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// TestLimitInfo writes a record with the offsets of the C struct, and reads it back. TestStructLayouts compares these offsets with the C struct.
func TestLimitInfo(t *testing.T) {
	want := image.LimitInfo{Cost: 1, Most: 2, Fresh: 3, Base: 4, Mask: 5, Left: 6, Right: 7, Bits: 1, Prefixes: 1}
	want.Src[1].Lo, want.Dst[0].Hi = 8, 9
	memory := make([]byte, image.LimitInfoSize)
	if err := want.Marshal(memory); err != nil {
		t.Fatal(err)
	}
	offsets := members(structOf(t, "limit_info"))
	for member, value := range map[string]uint64{"cost": 1, "most": 2, "fresh": 3} {
		if got := binary.NativeEndian.Uint64(memory[offsets[member]:]); got != value {
			t.Errorf("%s is %d, want %d", member, got, value)
		}
	}
	if memory[offsets["src"]+24] != 8 || memory[offsets["dst"]] != 9 || memory[offsets["right"]] != 7 {
		t.Errorf("the record is %x", memory)
	}
	if got, err := image.ReadLimitInfo(memory); err != nil || got != want {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
}
