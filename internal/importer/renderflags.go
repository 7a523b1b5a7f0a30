// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"math/bits"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// flags writes TCP flags as values under masks.
func (r *renderer) flags() {
	v := r.cond.Field[packet.Flags]
	if v == nil {
		return
	}
	not := v.Has(packet.FlagsNone)
	if not {
		v = v.Not(packet.Flags)
	}
	list := flagWords(v)
	if inverse := flagWords(v.Not(packet.Flags).And(saved.Values{{First: 0, Last: packet.FlagsNone - 1}})); !not && len(inverse) < len(list) {
		not, list = true, inverse // v is not of other protocols, so protocol has written TCP already
	}
	r.keys.add(not, "flags", list)
}

// flagWords expresses a set of flag bytes as tests of some bits. It splits the set in halves until each part is such a test.
func flagWords(v saved.Values) []string {
	var cover func(mask, value uint32) []string
	cover = func(mask, value uint32) []string {
		n, of := 0, 0
		free := uint32(0)
		for f := range uint32(packet.FlagsNone) {
			if f&mask == value {
				of++
				if v.Has(f) {
					n++
				}
			}
		}
		switch {
		case n == 0:
			return nil
		case n == of && mask != 0: // a test must contain at least one flag
			return []string{flagWord(value, mask)}
		}
		free = ^mask & 255
		bit := bestFlag(v, mask, value, free)
		return append(cover(mask|bit, value|bit), cover(mask|bit, value)...)
	}
	return cover(0, 0)
}

// bestFlag returns the free bit that best separates the bytes in v from the others. It compares the number of bytes in v that have the bit set
// with the number that do not; the bit with the largest difference is the best.
func bestFlag(v saved.Values, mask, value, free uint32) (best uint32) {
	most := -1
	for ; free != 0; free &= free - 1 {
		bit := uint32(1) << bits.TrailingZeros32(free)
		diff := 0
		for f := range uint32(packet.FlagsNone) {
			switch {
			case f&mask != value || !v.Has(f):
			case f&bit != 0:
				diff++
			default:
				diff--
			}
		}
		if diff = max(diff, -diff); diff > most {
			most, best = diff, bit
		}
	}
	return best
}

// flagWord returns VALUE/MASK, in quotes if a comma in it would end the word.
func flagWord(value, mask uint32) string {
	word := policy.Flags{Value: uint8(value), Mask: uint8(mask)}.String()
	if value == mask && bits.OnesCount32(value) == 1 {
		word, _, _ = strings.Cut(word, "/")
	}
	if strings.Contains(word, ",") {
		word = `"` + word + `"`
	}
	return word
}
