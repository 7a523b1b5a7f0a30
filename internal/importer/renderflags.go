package importer

import (
	"math/bits"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
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
		not, list = true, inverse // protocol has written that it is TCP
	}
	r.keys.add(not, "flags", list)
}

// flagWords covers a set of flag bytes with tests of some bits, by halving what is no such test.
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
		case n == of && mask != 0: // a test looks at one flag at least
			return []string{flagWord(value, mask)}
		}
		free = ^mask & 255
		bit := bestFlag(v, mask, value, free)
		return append(cover(mask|bit, value|bit), cover(mask|bit, value)...)
	}
	return cover(0, 0)
}

// bestFlag is the free bit that tells bytes in v from others best: the half where it is set differs most from the
// other in how many it has.
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

var flagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"}

// flagWord is VALUE/MASK, in quotes when a comma in it would end the word.
func flagWord(value, mask uint32) string {
	names := func(byte uint32) string {
		var set []string
		for i, n := range flagNames {
			if byte>>i&1 == 1 {
				set = append(set, n)
			}
		}
		if set == nil {
			return "none"
		}
		return strings.Join(set, ",")
	}
	word := names(value) + "/" + names(mask)
	if value == mask && bits.OnesCount32(value) == 1 {
		word = names(value)
	}
	if strings.Contains(word, ",") {
		word = `"` + word + `"`
	}
	return word
}
