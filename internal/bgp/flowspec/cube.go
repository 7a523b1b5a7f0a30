// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"math/bits"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// cube is the set of all bytes of TCP flags that equal value in the bits of mask.
type cube struct{ value, mask byte }

// cubes returns cubes whose union is the given values of packet.Flags. It uses a greedy algorithm that adds the largest cubes first.
func cubes(values []ranges.Range) (list []cube) {
	var has, left [packet.FlagsNone]bool
	for v := range has {
		has[v] = contains(values, uint32(v))
	}
	left = has
	for fixed := range 9 {
		for mask := range 256 {
			if bits.OnesCount8(byte(mask)) != fixed {
				continue
			}
			for value := range 256 {
				c := cube{byte(value), byte(mask)}
				if value&^mask == 0 && c.inside(&has) && c.adds(&left) {
					list = append(list, c)
				}
			}
		}
	}
	return list
}

func (c cube) inside(has *[packet.FlagsNone]bool) bool {
	for v := range has {
		if byte(v)&c.mask == c.value && !has[v] {
			return false
		}
	}
	return true
}

// adds removes the bytes of a cube from left, and reports whether it removed any.
func (c cube) adds(left *[packet.FlagsNone]bool) (any bool) {
	for v := range left {
		if byte(v)&c.mask == c.value && left[v] {
			any, left[v] = true, false
		}
	}
	return any
}
