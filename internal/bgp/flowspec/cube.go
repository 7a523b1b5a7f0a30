package flowspec

import (
	"math/bits"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// cube is all bytes of TCP flags whose bits of mask are those of value.
type cube struct{ value, mask byte }

// cubes covers values of packet.Flags that are bytes: greedily, the largest cubes first.
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

// adds reports whether a cube has a byte that is left, and takes its bytes from those.
func (c cube) adds(left *[packet.FlagsNone]bool) (any bool) {
	for v := range left {
		if byte(v)&c.mask == c.value && left[v] {
			any, left[v] = true, false
		}
	}
	return any
}
